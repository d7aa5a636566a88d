// SPDX-License-Identifier: Apache-2.0
// What the bound of an element is made of: its size if only one kind of error existed.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "reference/oracle/bound.h"

namespace attest {

struct BoundPart {
  std::string_view source;  // "rounding of P", "products", "registers", "functions", "operands", "output"
  double alone;             // the bound with all other errors 2^-20 of what is declared
};

/// Chooses one element of the bounds.
using BoundElement = std::function<double(const Bounds&)>;

/// For each element its parts, largest first, those that are 0 left out. As much work as six times error_bounds.
std::vector<std::vector<BoundPart>> bound_parts(const Problem& problem, const Inputs& inputs, const Exact& exact,
                                                const NumericsProfile& profile, BoundMode mode,
                                                const std::vector<BoundElement>& elements);

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// The tensors of a case file: their names, types and shapes follow from the problem, and where their values live in a
// GoldenCase. Writer, reader and lint walk this one list.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "golden/golden_case.h"
#include "reference/problem/safetensors.h"

namespace attest::golden {

struct CaseTensor {
  std::string name;
  StoredType type;
  std::vector<std::int64_t> shape;
  std::function<std::vector<double>(const GoldenCase&)> get;
  std::function<void(GoldenCase&, std::vector<double>)> set;

  bool is_bound() const { return name.starts_with("bound."); }
};

/// In the order of docs/golden-format.md: inputs, what is visible, outputs, bounds.
std::vector<CaseTensor> case_tensors(const Problem& problem);

/// Names of the outputs of a problem: o lse, dq dk dv, dbias, as far as it asks for them.
std::vector<std::string> output_names(const Problem& problem);

/// The values of an output in `exact` (or in `bounds`), by name.
std::vector<double>& output_values(Exact& exact, const std::string& name);
std::vector<double>& output_values(Bounds& bounds, const std::string& name);

/// [B|1, Hq|1, max_q|1, max_k|1] as the bias has them; all zero extents without a bias.
std::vector<std::int64_t> operand_shape(const Problem& problem, const Broadcast& shape);

}  // namespace attest::golden

// SPDX-License-Identifier: Apache-2.0
// The oracle's own mask predicate and dropout keep decision. Kernels do not use it.
#pragma once

#include <cstdint>
#include <span>

#include "reference/problem/inputs.h"
#include "reference/problem/problem.h"

namespace attest {

/// Keys [first, last) that causal, window and length let query i of sequence b see; empty when last <= first.
struct KeyRange {
  std::int64_t first;
  std::int64_t last;
};
KeyRange key_range(const Problem& problem, std::int64_t b, std::int64_t i);

/// True where query i of (b, h) sees key j: range, explicit and block mask. A -inf bias hides too, but in the scores.
bool visible(const Problem& problem, const Inputs& inputs, std::int64_t b, std::int64_t h, std::int64_t i,
             std::int64_t j);

/// True where dropout keeps (b, h, i, j).
bool kept(const Problem& problem, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j);
/// kept() of keys first, first + 1, ... as 1 or 0. The problem has dropout.
void kept_row(const Problem& problem, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t first,
              std::span<double> keep);

/// Philox4x32-10, Salmon et al. 2011, section 3: 128-bit counter, 64-bit key.
struct PhiloxBlock {
  std::uint32_t word[4];
};
PhiloxBlock philox4x32_10(PhiloxBlock counter, std::uint64_t key);

}  // namespace attest

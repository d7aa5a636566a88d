// SPDX-License-Identifier: Apache-2.0
// Random cases, biased to where attention kernels break: lengths around tile edges, unequal and empty sequences,
// every mask and layout, extreme inputs. Case `index` of `seed` is the same on every machine, made alone or in a list.
#pragma once

#include <cstdint>
#include <vector>

#include <rapidcheck.h>

#include "reference/problem/inputs.h"
#include "reference/problem/layout.h"
#include "reference/problem/problem.h"

namespace attest {

/// What the cases are drawn from.
struct CaseSpace {
  Direction direction = Direction::both;      // both: mostly both, sometimes one of them
  std::vector<std::int64_t> tiles = {16, 32, 64, 128, 256};  // lengths, windows and padding are drawn around these
  std::int64_t key_tile = 64;                 // of the kernel: what a long padding is longer than
  std::int64_t longest = 384;                 // tokens of one sequence
  double most_work = 3e7;                     // multiplications of one forward
};

/// A RapidCheck generator, for properties.
rc::Gen<Problem> cases(const CaseSpace& space);

/// The case that `seed` has at `index`.
Problem random_case(const CaseSpace& space, std::uint64_t seed, std::uint64_t index);

/// False for families on which the values of such a problem cannot be judged.
bool can_be_judged(const Family& family, const Problem& problem);

/// Strides that leave `gap` elements after each row, head and sequence; heads outside of rows, or rows outside of heads.
Strides spaced_strides(const Extents& extents, std::int64_t gap, bool heads_outside);

/// Multiply-adds of Q K^T and P V over all sequences and heads, masks not counted.
double forward_work(const Problem& problem);

}  // namespace attest

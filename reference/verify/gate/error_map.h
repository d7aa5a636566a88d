// SPDX-License-Identifier: Apache-2.0
// Where in a tensor the error is: the largest score of every head and row, in so few cells that they can be drawn.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/problem/device_memory.h"
#include "reference/problem/problem.h"
#include "reference/problem/values.h"
#include "reference/verify/kernel.h"

namespace attest {

struct ErrorMap {
  std::string tensor;
  std::int64_t heads = 0;
  std::int64_t rows = 0;          // tokens, over all sequences
  std::int64_t rows_per_cell = 1;
  std::int64_t cells = 0;         // of one head
  std::vector<double> scores;     // [heads, cells], the largest of the cell; infinity for NaN and the like
};

/// `want`, `got` and `bound` are [tokens, heads, width]; at most `most_cells` cells a head and `most_heads` heads.
ErrorMap error_map(std::string tensor, const Values& want, const Values& got, const Values& bound, Dtype type,
                   std::int64_t most_cells = 128, std::int64_t most_heads = 16);

/// Runs the kernel on the case once more; o, dq, dk and dv as far as the case has them. Empty where it does not answer.
std::vector<ErrorMap> error_maps(const Kernel& kernel, const Problem& problem, DeviceMemory& memory);

}  // namespace attest

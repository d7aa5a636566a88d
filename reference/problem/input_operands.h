// SPDX-License-Identifier: Apache-2.0
// The inputs besides q, k, v and d_o: gradient of LSE, bias, masks and ALiBi slopes.
#pragma once

#include "reference/problem/inputs.h"
#include "reference/problem/problem.h"

namespace attest {

/// Adds every operand that the problem has and `inputs` lacks (a file may have brought some).
void add_operands(const Problem& problem, Inputs& inputs);

/// 2^(-8 (h + 1) / Hq) rounded to f32.
double alibi_slope(std::int64_t head, std::int64_t heads_q);

}  // namespace attest

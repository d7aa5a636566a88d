// SPDX-License-Identifier: Apache-2.0
// Judges every tensor that a case returns.
#pragma once

#include <vector>

#include "reference/oracle/bound.h"
#include "reference/problem/problem.h"
#include "reference/verify/placement.h"
#include "reference/verify/verdict.h"

namespace attest {

/// o and lse, dq, dk, dv and dbias, as far as problem.direction asks for them.
std::vector<TensorVerdict> judge_outputs(const Problem& problem, const ExactWithBounds& truth, const Outputs& got);

}  // namespace attest

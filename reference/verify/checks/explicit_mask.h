// SPDX-License-Identifier: Apache-2.0
// All masks of a case as one explicit mask, for checks that describe what is visible in another way.
#pragma once

#include "reference/problem/inputs.h"
#include "reference/problem/problem.h"

namespace attest {

/// False where the mask would have more than two million entries.
bool fits_explicit(const Problem& problem);
/// [B, Hq or 1, max_q, max_k], 1 where causal, window, lengths, explicit and block mask all show the pair.
Operand<std::uint8_t> visible_pairs(const Problem& problem, const Inputs& inputs);
/// Puts that mask in the place of causal, window, explicit and block mask.
void use_explicit(Problem& problem, Inputs& inputs);

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// How other suites judge the outputs of a kernel, to be compared with Attest's bound on the same outputs.
#pragma once

#include <string>

#include "reference/oracle/exact.h"
#include "reference/problem/problem.h"
#include "reference/verify/placement.h"

namespace attest::tools {

enum class Rule : std::uint8_t {
  bound,     // Attest: check()
  allclose,  // torch.testing.assert_close: |got - want| <= atol + rtol |want|, its default tolerances by type
  fa2x,      // FlashAttention: largest error at most twice that of a plain implementation in the same type
  nmse,      // ggml: sum (got - want)^2 <= 5e-4 sum want^2
};

/// Whether the rule accepts; `baseline` is what the plain implementation gave (fa2x). O and the gradients are judged,
/// LSE by allclose alone, since the suites of the other two never look at it. The reason for a rejection goes to
/// `why` (a tensor's name).
bool accepts(Rule rule, const Problem& problem, const Exact& want, const Outputs& got, const Outputs& baseline,
             std::string& why);

}  // namespace attest::tools

// SPDX-License-Identifier: Apache-2.0
// What each of five acceptance rules says about one implementation on one case.
#pragma once

#include <string>

#include "tests/support/tiled_faults.h"

namespace attest::tiled_faults {

struct RuleVerdicts {
  bool torch = false;  // rejected by torch.testing's default tolerances: rtol 1e-3 (f16), 1.6e-2 (bf16), atol 1e-5
  bool loose = false;  // by rtol = atol = 1e-2 (bf16 2e-2)
  bool flash = false;  // by FlashAttention's rule: error over twice that of attention in the input type, plus 1e-5
  bool nmse = false;   // by ggml's: sum of squared errors over 5e-4 of the sum of squares
  bool bound = false;  // by the computed bound; the others do not see LSE
  double score = 0;    // largest error over bound
  std::string tensor;  // of that
};

/// A case, its exact result and bounds for float32 sums and P in the input type.
class FaultStudy {
 public:
  explicit FaultStudy(const std::string& case_text);
  RuleVerdicts judge(const Exact& got) const;
  RuleVerdicts judge(Fault fault) const { return judge(faulty_attention(problem_, inputs_, fault)); }
  const Problem& problem() const { return problem_; }
  const Inputs& inputs() const { return inputs_; }

 private:
  Problem problem_;
  Inputs inputs_;
  Exact exact_, low_;
  Values bound_o_, bound_dq_, bound_dk_, bound_dv_;  // [tokens, heads, width]
  std::vector<double> bound_lse_;                    // [tokens_q, Hq]
};

/// The case on which a fault of the table is looked for: N(0, 1), and the features that the fault needs.
std::string case_for(Fault fault, const std::string& dtype);

}  // namespace attest::tiled_faults

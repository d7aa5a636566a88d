// SPDX-License-Identifier: Apache-2.0
// do = 0 and dlse = 0 give gradients of exactly 0 (contract: every term of dq, dk, dv and dbias has one of them).
#include "reference/verify/checks/check_units.h"
#include "reference/verify/checks/compare.h"

#include <algorithm>
#include <cmath>

namespace attest {
namespace {

CheckResult run(const CheckContext& context) {
  Problem p = context.problem();
  if (!p.wants_backward()) return CheckResult::not_applicable("forward only");
  for (const double o : context.truth().exact.o.data) {
    if (!std::isfinite(o)) return CheckResult::not_applicable("o is not finite, and 0 times it is NaN");
  }
  Inputs inputs = context.inputs();
  std::ranges::fill(inputs.d_o.data, 0.0);
  std::ranges::fill(inputs.d_lse, 0.0);
  ExactWithBounds truth = context.truth();
  const auto clear = [](std::vector<double>& exact, std::vector<double>& bound) {
    std::ranges::fill(exact, 0.0);
    std::ranges::fill(bound, 0.0);
  };
  clear(truth.exact.dq.data, truth.bounds.dq.data);
  clear(truth.exact.dk.data, truth.bounds.dk.data);
  clear(truth.exact.dv.data, truth.bounds.dv.data);
  clear(truth.exact.d_bias.data, truth.bounds.d_bias.data);
  CheckResult result;
  expect_truth(p, truth, context.run(p, inputs, truth.exact), "with do = 0", result);
  return result;
}

}  // namespace

const CheckUnit kZeroGradient = {"zero-do", "do = 0 gives gradients of exactly 0", "K01 K15 M33", 1, run};

}  // namespace attest

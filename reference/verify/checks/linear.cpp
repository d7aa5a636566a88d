// SPDX-License-Identifier: Apache-2.0
// o is linear in v, and all gradients in (do, dlse) and in v with dlse: a factor of -2, which no rounding notices, comes
// out of every result; the bounds grow by the factor.
#include "reference/verify/checks/check_units.h"
#include "reference/verify/checks/compare.h"

#include <algorithm>
#include <cmath>

#include "reference/problem/dtype.h"

namespace attest {
namespace {

void scale_all(std::vector<double>& exact, std::vector<double>& bound) {
  for (double& x : exact) x *= -2;
  for (double& x : bound) x *= 2;
}

bool fits(const std::vector<double>& values, double largest) {
  return std::ranges::all_of(values, [&](double x) { return 2 * std::abs(x) <= largest; });
}

CheckResult run(const CheckContext& context) {
  const Problem& p = context.problem();
  if (!plain_conventions(context)) return CheckResult::not_applicable("the kernel has another convention for empty rows");
  const bool of_v = !p.wants_backward() || context.below(2, "linear") == 0;
  Inputs inputs = context.inputs();
  ExactWithBounds truth = context.truth();
  const double in_range = format_of(p.dtype).max;
  const double out_range = format_of(p.output_dtype()).max / 4;
  std::vector<double>& changed = of_v ? inputs.v.data : inputs.d_o.data;
  if (!fits(changed, in_range) || !fits(truth.exact.o.data, out_range) || !fits(truth.exact.dq.data, out_range) ||
      !fits(truth.exact.dk.data, out_range) || !fits(truth.exact.dv.data, out_range)) {
    return CheckResult::not_applicable("values at the top of the range");
  }
  for (double& x : changed) x *= -2;
  for (double& x : inputs.d_lse) x *= -2;
  if (of_v) scale_all(truth.exact.o.data, truth.bounds.o.data);
  if (!of_v) scale_all(truth.exact.dv.data, truth.bounds.dv.data);
  scale_all(truth.exact.dq.data, truth.bounds.dq.data);
  scale_all(truth.exact.dk.data, truth.bounds.dk.data);
  scale_all(truth.exact.d_bias.data, truth.bounds.d_bias.data);
  CheckResult result;
  expect_truth(p, truth, context.run(p, inputs, truth.exact), of_v ? "with v times -2" : "with do times -2", result);
  return result;
}

}  // namespace

const CheckUnit kLinear = {"linear", "v times -2, or do times -2, comes out of every result", "K11 K21 K27", 1, run};

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// A case, another one, and the first again: what a kernel keeps between calls must not matter.
#include "reference/verify/checks/check_units.h"
#include "reference/verify/checks/compare.h"

#include <algorithm>

namespace attest {
namespace {

/// The same shapes under other constants, which a kernel could have kept from before.
Problem other_case(const CheckContext& context) {
  Problem other = context.problem();
  switch (context.below(4, "history")) {
    case 0:
      other.causal = other.causal == Causal::none ? Causal::bottom_right : Causal::none;
      if (other.causal != Causal::none && other.window) other.window->alignment = Causal::none;
      break;
    case 1: other.scale = other.effective_scale() == 0.5 ? 0.25 : 0.5; break;
    case 2: other.softcap = other.softcap == 0 ? 15 : 0; break;
    default:
      std::ranges::reverse(other.seq_q);
      std::ranges::reverse(other.seq_k);
      other.window = Window{3, 2, Causal::none};
      break;
  }
  other.d_bias = false;
  return other;
}

CheckResult run(const CheckContext& context) {
  const Problem other = other_case(context);
  if (const std::string why = context.kernel().why_unsupported(other); !why.empty()) return CheckResult::not_applicable(why);
  Inputs inputs = context.inputs();
  // Operands and rows keep their sizes, so the inputs of the case will do; what comes out does not matter.
  if (other.seq_q != context.problem().seq_q || other.seq_k != context.problem().seq_k) inputs = make_inputs(other);
  const KernelRun between = context.run(other, inputs, context.truth().exact);
  CheckResult result;
  if (!answered(between, "another case in between", result)) return result;
  expect_repeats(context, context.run(context.problem(), context.inputs(), context.truth().exact), "again after another case", result);
  return result;
}

}  // namespace

const CheckUnit kHistory = {"history", "a case gives the same answer after another case ran", "K12 K14 K30 M18", 2, run};

}  // namespace attest

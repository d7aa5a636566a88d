// SPDX-License-Identifier: Apache-2.0
// The same call again, over other memory with other leftovers in workspace and outputs.
#include "reference/verify/checks/check_units.h"
#include "reference/verify/checks/compare.h"

namespace attest {
namespace {

CheckResult run(const CheckContext& context) {
  CheckResult result;
  expect_repeats(context, context.run(context.problem(), context.inputs(), context.truth().exact, {Poison::huge}),
                 "the same call again, over a dirty workspace", result);
  return result;
}

}  // namespace

const CheckUnit kRerun = {"rerun", "the same call gives the same bits where the kernel promises them, over dirty memory too",
                          "K14 K15 M25 M29 M33", 1, run};

}  // namespace attest

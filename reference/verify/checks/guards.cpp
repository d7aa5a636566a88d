// SPDX-License-Identifier: Apache-2.0
// Guard bands around each buffer, padding and gaps between rows and heads of outputs stay as they were (Placement).
#include "reference/verify/checks/check_units.h"
#include "reference/verify/checks/compare.h"

namespace attest {
namespace {

CheckResult run(const CheckContext& context) {
  return {context.base_found("guard") || context.base_found("gap") ? Outcome::fail : Outcome::pass, {}, {}};
}

}  // namespace

const CheckUnit kGuards = {"guards", "nothing is written outside the elements that exist", "K05 K08 K15 M22 M32", 0, run};

}  // namespace attest

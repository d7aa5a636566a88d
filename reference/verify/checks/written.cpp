// SPDX-License-Identifier: Apache-2.0
// Outputs start as NaN patterns, so that each element that a kernel leaves alone shows (Placement).
#include "reference/verify/checks/check_units.h"
#include "reference/verify/checks/compare.h"

namespace attest {
namespace {

CheckResult run(const CheckContext& context) {
  return {context.base_found("unwritten") ? Outcome::fail : Outcome::pass, {}, {}};
}

}  // namespace

const CheckUnit kWritten = {"written", "every element of every output is written", "K04 K15 K19 K23 M21 M28", 0, run};

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// Inputs, and o and lse once they are inputs of the backward, stay as they were (Placement).
#include "reference/verify/checks/check_units.h"
#include "reference/verify/checks/compare.h"

namespace attest {
namespace {

CheckResult run(const CheckContext& context) {
  return {context.base_found("input") ? Outcome::fail : Outcome::pass, {}, {}};
}

}  // namespace

const CheckUnit kInputsUnchanged = {"inputs", "inputs stay as they were", "K15", 0, run};

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// Adds to the tensors of a verdict what the bound of their worst element is made of.
#pragma once

#include "reference/oracle/bound.h"
#include "reference/problem/inputs.h"
#include "reference/verify/verdict.h"

namespace attest {

/// Elements whose bound is 0 or infinite have no parts. `mode` is the one that judged.
void explain_bounds(const Inputs& inputs, const NumericsProfile& profile, BoundMode mode, Verdict& verdict);

}  // namespace attest

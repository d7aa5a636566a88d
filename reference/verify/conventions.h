// SPDX-License-Identifier: Apache-2.0
// From the contract's exact answer to what a kernel with other declared conventions must return.
#pragma once

#include "reference/oracle/bound.h"
#include "reference/problem/inputs.h"
#include "reference/problem/kernel_abi.h"
#include "reference/problem/problem.h"

namespace attest {

/// Rewrites empty rows of o, and lse with its unit, in place; bounds follow.
void apply_conventions(const attest_conventions& conventions, const Problem& problem, const Inputs& inputs,
                       ExactWithBounds& truth);

}  // namespace attest

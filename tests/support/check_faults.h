// SPDX-License-Identifier: Apache-2.0
// The built-in `flash` kernel with faults that its values do not show, one for each check that must find them. All
// write float32.
#pragma once

#include "reference/problem/kernel_abi.h"

namespace attest::testing_support {

/// Throws std::logic_error for a name that does not exist; "sound" has no fault.
const attest_kernel* check_fault(const char* name);

}  // namespace attest::testing_support

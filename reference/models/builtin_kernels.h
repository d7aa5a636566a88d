// SPDX-License-Identifier: Apache-2.0
// The CPU kernels that ship with Attest, behind the same ABI as any other kernel.
#pragma once

#include <span>

#include "reference/problem/kernel_abi.h"

namespace attest {

/// In the order in which they are listed to users.
std::span<const attest_kernel* const> builtin_cpu_kernels();

}  // namespace attest

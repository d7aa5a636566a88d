// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels that ship with Attest, behind the same ABI as any other kernel. Built only where nvcc is found.
#pragma once

#include <span>
#include <string>

#include "reference/problem/kernel_abi.h"

namespace attest::cuda {

/// In the order in which they are listed to users.
std::span<const attest_kernel* const> builtin_cuda_kernels();

/// True where a device that can run them (compute capability 8.0 or newer) is there; else `why_not` says why.
bool cuda_available(std::string* why_not);

}  // namespace attest::cuda

// SPDX-License-Identifier: Apache-2.0
// The kernels that ship with Attest and can run on this machine, and the memory a kernel works in.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "reference/problem/device_memory.h"
#include "reference/verify/kernel.h"

namespace attest::tools {

/// CPU kernels, then CUDA ones where they are built and a GPU is found.
std::vector<Kernel> builtin_kernels();

/// Why no CUDA kernel is listed: not built, or no GPU; empty where they are.
std::string why_no_cuda();

/// Memory of the kernel's device. Throws InvalidRequest("kernel", ...) for a CUDA kernel without a GPU.
std::unique_ptr<DeviceMemory> memory_for(const Kernel& kernel);

}  // namespace attest::tools

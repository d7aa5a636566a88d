// SPDX-License-Identifier: Apache-2.0
// DeviceMemory for CUDA: device 0, one stream of its own.
#pragma once

#include <memory>

#include "reference/problem/device_memory.h"

namespace attest::cuda {

/// Throws DeviceError where there is no device (ask cuda_available first).
std::unique_ptr<DeviceMemory> make_cuda_memory();

}  // namespace attest::cuda

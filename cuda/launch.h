// SPDX-License-Identifier: Apache-2.0
// One-dimensional launches, checked. Grids beyond 65,535 blocks are one-dimensional for that reason.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/error.h"

namespace attest::cuda {

/// Does nothing for 0 blocks.
template <typename Kernel, typename... Values>
void launch_kernel(Kernel kernel, const char* name, std::int64_t blocks, int threads, int shared_bytes,
                   cudaStream_t stream, const Values&... values) {
  if (blocks == 0) return;
  if (blocks > 0x7fffffff) throw DeviceError("launch", "more than 2^31 - 1 blocks", name);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "cudaFuncSetAttribute",
        name);
  kernel<<<static_cast<unsigned>(blocks), threads, shared_bytes, stream>>>(values...);
  check_launch(name);
}

}  // namespace attest::cuda

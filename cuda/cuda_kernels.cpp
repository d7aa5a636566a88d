// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_kernels.h"

#include <array>

#include "cuda/device_memory.h"
#include "cuda/error.h"
#include "cuda/kernel_table.h"

namespace attest::cuda {

std::span<const attest_kernel* const> builtin_cuda_kernels() {
  static const std::array<const attest_kernel*, 2> kernels = {&flash_f32_kernel(), &flash_kernel()};
  return kernels;
}

bool cuda_available(std::string* why_not) {
  const auto no = [&](const std::string& reason) {
    if (why_not != nullptr) *why_not = reason;
    return false;
  };
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess) return no(cudaGetErrorString(error));
  if (devices == 0) return no("no CUDA device");
  int major = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess || major < 8) {
    return no("the device is older than compute capability 8.0");
  }
  return true;
}

}  // namespace attest::cuda

// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_kernels.h"

#include <array>

#include "cuda/device_memory.h"
#include "cuda/error.h"
#include "cuda/kernel_table.h"

namespace attest::cuda {

std::span<const attest_kernel* const> builtin_cuda_kernels() {
  static const std::array<const attest_kernel*, 4> kernels = {&standard_kernel(), &flash_f32_kernel(), &flash_kernel(),
                                                              &flash_split_kernel()};
  return kernels;
}

namespace {

int device_attribute(cudaDeviceAttr attribute) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, attribute, 0) == cudaSuccess ? value : 0;
}

}  // namespace

attest_accumulation tensor_core_accumulation() {
  static const int major = device_attribute(cudaDevAttrComputeCapabilityMajor);
  constexpr int kHopper = 9;
  if (major == kHopper) return {16, 25, 0x1p-23, 1, 0};
  return {4, 23, 0x1p-23, 1, 0};
}

int multiprocessors() {
  static const int count = device_attribute(cudaDevAttrMultiProcessorCount);
  return count > 0 ? count : 1;
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

// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels as a shared library of the kernel ABI, for `attest verify --kernel` and for ctypes.
#include "cuda/cuda_kernels.h"

size_t attest_kernels(uint32_t abi_version, const attest_kernel* const** kernels) {
  if (abi_version != ATTEST_ABI_VERSION) return 0;
  const auto all = attest::cuda::builtin_cuda_kernels();
  *kernels = all.data();
  return all.size();
}

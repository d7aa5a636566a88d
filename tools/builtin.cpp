// SPDX-License-Identifier: Apache-2.0
#include "tools/builtin.h"

#include <fmt/format.h>

#include "reference/models/builtin_kernels.h"
#include "reference/problem/invalid_request.h"

#ifdef ATTEST_WITH_CUDA
#include "cuda/cuda_kernels.h"
#include "cuda/device_memory.h"
#endif

namespace attest::tools {

std::vector<Kernel> builtin_kernels() {
  std::vector<Kernel> kernels;
  for (const attest_kernel* table : builtin_cpu_kernels()) kernels.emplace_back(table);
#ifdef ATTEST_WITH_CUDA
  if (cuda::cuda_available(nullptr)) {
    for (const attest_kernel* table : cuda::builtin_cuda_kernels()) kernels.emplace_back(table);
  }
#endif
  return kernels;
}

std::string why_no_cuda() {
#ifdef ATTEST_WITH_CUDA
  std::string why;
  return cuda::cuda_available(&why) ? "" : why;
#else
  return "this build has no CUDA";
#endif
}

std::unique_ptr<DeviceMemory> memory_for(const Kernel& kernel) {
  if (!kernel.on_cuda()) return make_host_memory();
  if (const std::string why = why_no_cuda(); !why.empty()) {
    throw InvalidRequest("kernel", fmt::format("{}, which runs on CUDA", kernel.name()), fmt::format("a CPU kernel ({})", why));
  }
#ifdef ATTEST_WITH_CUDA
  return cuda::make_cuda_memory();
#else
  return nullptr;
#endif
}

}  // namespace attest::tools

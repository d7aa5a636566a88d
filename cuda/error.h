// SPDX-License-Identifier: Apache-2.0
// CUDA failures as exceptions inside cuda/, and as statuses at the kernel ABI.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

#include "reference/problem/device_memory.h"
#include "reference/problem/kernel_abi.h"

namespace attest::cuda {

/// A call of the CUDA run-time library failed. context() names the kernel and, from the harness, the case.
class CudaError : public DeviceError {
 public:
  CudaError(const std::string& call, cudaError_t error, const std::string& context = {})
      : DeviceError(call, std::string(cudaGetErrorName(error)) + ", " + cudaGetErrorString(error), context),
        code_(error) {}
  cudaError_t code() const { return code_; }

 private:
  cudaError_t code_;
};

inline void check(cudaError_t error, const char* call, const std::string& context = {}) {
  if (error != cudaSuccess) throw CudaError(call, error, context);
}

/// To be called right after a launch: throws if it was refused.
inline void check_launch(const char* kernel) { check(cudaGetLastError(), "launch", kernel); }

/// Copies `text` into a message of the ABI, cut to its room.
void write_message(const std::string& text, char* message, std::size_t bytes);

/// Refuses what the contract or `supports` forbids, then runs body(call); exceptions become ATTEST_FAILED.
int32_t run_checked(const attest_call* call, const attest_kernel& kernel, void (*body)(const attest_call&));

}  // namespace attest::cuda

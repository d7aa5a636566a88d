// SPDX-License-Identifier: Apache-2.0
// Buffers and calls of one problem for timing: random inputs, nothing judged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference/problem/device_memory.h"
#include "reference/problem/kernel_abi.h"
#include "reference/problem/problem.h"
#include "reference/verify/abi_problem.h"
#include "reference/verify/kernel.h"

namespace attest::tools {

/// Of one problem without masks, biases or pages other than causal; the others throw InvalidRequest("case", ...).
class BenchCall {
 public:
  BenchCall(const Problem& problem, const Kernel& kernel, DeviceMemory& memory);
  BenchCall(const BenchCall&) = delete;
  BenchCall& operator=(const BenchCall&) = delete;

  /// Enqueues one call of that direction; throws std::runtime_error with the kernel's message where it will not run.
  void enqueue(std::int32_t direction);

  std::size_t tensor_bytes() const { return tensor_bytes_; }
  std::size_t workspace_bytes() const { return workspace_bytes_; }

 private:
  void* allocate(std::size_t bytes);
  attest_tensor tensor(TensorId id);
  void randomise(const attest_tensor& tensor, TensorId id);

  const Problem& problem_;
  const Kernel& kernel_;
  DeviceMemory& memory_;
  AbiProblem abi_;
  std::vector<DeviceBuffer> buffers_;
  attest_call call_{};
  char message_[256] = {};
  std::size_t tensor_bytes_ = 0;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace attest::tools

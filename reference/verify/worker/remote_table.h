// SPDX-License-Identifier: Apache-2.0
// An attest_kernel whose functions run in a worker. The functions of the ABI carry no context, so each table takes
// one of a fixed number of places, and every place has functions of its own.
#pragma once

#include <cstddef>
#include <memory>

#include "reference/problem/kernel_abi.h"
#include "reference/verify/worker/worker_process.h"

namespace attest {

class RemoteTable {
 public:
  /// Throws std::length_error where more than kPlaces are alive.
  RemoteTable(std::shared_ptr<WorkerProcess> process, const KernelFacts& facts);
  ~RemoteTable();
  RemoteTable(const RemoteTable&) = delete;
  RemoteTable& operator=(const RemoteTable&) = delete;

  const attest_kernel* get() const { return &table_; }

  std::int32_t supports(const attest_problem* problem, char* reason, std::size_t reason_bytes);
  void numerics(const attest_problem* problem, attest_numerics* numerics);
  std::size_t workspace_bytes(const attest_problem* problem, std::int32_t direction);
  std::int32_t run(const attest_call* call, std::int32_t direction);

  static constexpr std::size_t kPlaces = 256;

 private:
  std::shared_ptr<WorkerProcess> process_;
  KernelFacts facts_;
  std::size_t place_ = 0;
  attest_kernel table_{};
};

}  // namespace attest

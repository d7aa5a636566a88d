// SPDX-License-Identifier: Apache-2.0
// A kernel that runs in a process of its own behind the same interface as any other: a Kernel whose functions hand
// the call over and wait, and the DeviceMemory that its buffers are in. The oracle, the judge and the verdict stay
// here, out of the kernel's reach.
//
//   WorkerKernel worker("./libmine.so:mine", WorkerLimits{});
//   const Verdict verdict = check(worker.kernel(), problem, worker.memory());
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "reference/problem/device_memory.h"
#include "reference/verify/kernel.h"
#include "reference/verify/worker/worker_process.h"

namespace attest {

/// The executable that this process runs.
inline constexpr const char* kThisExecutable = "/proc/self/exe";

class WorkerKernel {
 public:
  /// `request` names one kernel. Throws InvalidRequest("kernel", ...) where it does not, or where its library does not
  /// survive being loaded. Functions of the kernel, and of the memory, throw KernelFailure; the next call starts afresh.
  explicit WorkerKernel(std::string request, WorkerLimits limits = {}, std::string executable = kThisExecutable);

  const Kernel& kernel() const { return *kernel_; }
  DeviceMemory& memory() const { return *memory_; }
  /// Of this kernel so far, as WorkerProcess counts them.
  double kernel_seconds() const { return process_->kernel_seconds(); }
  std::int64_t calls() const { return process_->calls(); }
  double call_seconds() const { return process_->call_seconds(); }
  /// Starts of a worker process so far.
  std::int64_t starts() const { return process_->generation(); }

 private:
  std::shared_ptr<WorkerProcess> process_;
  std::unique_ptr<Kernel> kernel_;
  std::unique_ptr<DeviceMemory> memory_;
};

/// What each of the kernels that `request` names is called for, as WorkerKernel takes it. Throws as its constructor.
std::vector<std::string> kernel_requests(const std::string& request, const WorkerLimits& limits = {},
                                         const std::string& executable = kThisExecutable);

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// One child process at a time that runs a kernel: started when first needed, ended with all that it started when it
// breaks a limit, and started afresh after that. Nothing of it outlives its owner.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "reference/verify/kernel_failure.h"
#include "reference/verify/worker/arena.h"
#include "reference/verify/worker/protocol.h"

namespace attest {

/// What a kernel may take before its process is ended.
struct WorkerLimits {
  double seconds = 20;                            // of one call
  std::size_t memory = std::size_t{4} << 30;      // bytes of its own, the case's buffers not counted
  std::size_t output = std::size_t{1} << 20;      // bytes printed in one call
  std::function<bool()> cancelled;                // asked every few milliseconds; true ends the call
};

class WorkerProcess {
 public:
  /// `executable` is run as `EXECUTABLE worker REQUEST ADDRESS`.
  WorkerProcess(std::string request, WorkerLimits limits, std::string executable);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  /// Starts a worker where none runs, gives it the request and waits. Throws KernelFailure, whose text says that it
  /// happened in `doing`; InvalidRequest where the worker finds no such kernel; DeviceError of a device's memory.
  /// From any thread, one call at a time.
  Reply call(const Request& request, const std::string& doing);

  Arena& arena() { return arena_; }
  /// Grows with every start; what a device gave to an earlier one is gone.
  std::int64_t generation() const { return generation_; }
  /// That the kernel has run so far, its calls alone.
  double kernel_seconds() const { return kernel_seconds_; }
  /// Requests answered so far, and the time from sending to their answers.
  std::int64_t calls() const { return calls_; }
  double call_seconds() const { return call_seconds_; }

 private:
  using Clock = std::chrono::steady_clock;

  void start();
  Reply exchange(const Request& request, const std::string& doing);
  bool drain_output();
  [[noreturn]] void fail(FailureKind kind, const std::string& text);
  [[noreturn]] void explain_death(const std::string& doing);
  std::size_t own_memory() const;
  int end() noexcept;

  std::string request_;
  WorkerLimits limits_;
  std::string executable_;
  Arena arena_;
  std::mutex mutex_;
  pid_t process_ = -1;
  int socket_ = -1;
  int output_ = -1;
  std::int64_t generation_ = 0;
  double kernel_seconds_ = 0;
  std::int64_t calls_ = 0;
  double call_seconds_ = 0;
  std::size_t printed_ = 0;  // in this call
  std::string tail_;         // the end of it
};

}  // namespace attest

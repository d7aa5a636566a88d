// SPDX-License-Identifier: Apache-2.0
// A kernel as the commands run it: in a worker process for each thread, or in this process; with the options for that.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "reference/problem/device_memory.h"
#include "reference/verify/generate.h"
#include "reference/verify/kernel.h"
#include "reference/verify/profile.h"
#include "reference/verify/worker/worker_kernel.h"

namespace attest::tools {

struct WorkerOptions {
  int workers = 0;  // 0: as many as there are processors, at most kMostDefaultWorkers
  bool in_process = false;
  double timeout = WorkerLimits{}.seconds;
  std::uint64_t memory_limit = WorkerLimits{}.memory;
};

void add_worker_options(CLI::App& command, WorkerOptions& options);

class Subject {
 public:
  Subject(const std::string& request, const WorkerOptions& options);

  std::size_t threads() const { return threads_; }
  /// The kernel for one of the threads, and the memory that its buffers are in; each thread asks for its own.
  const Kernel& kernel(std::size_t thread = 0);
  DeviceMemory& memory(std::size_t thread = 0);
  /// Seconds that the kernel's own calls have taken on this thread; 0 in this process, where they are not measured.
  double kernel_seconds(std::size_t thread = 0) const { return workers_.empty() ? 0 : workers_.at(thread)->kernel_seconds(); }
  /// What the kernel's processes have cost, over all threads; nothing in this process.
  TransportCost transport() const;
  bool isolated() const { return !options_.in_process; }
  /// Ends the workers; the next use starts new ones.
  void close() { for (auto& worker : workers_) worker.reset(); }
  /// Leaves the calling thread its share of the processors.
  void share_processors() const;

 private:
  void open(std::size_t thread);

  std::string request_;
  WorkerOptions options_;
  std::size_t threads_ = 1;
  std::vector<std::unique_ptr<WorkerKernel>> workers_;
  std::unique_ptr<Kernel> kernel_;         // in this process
  std::unique_ptr<DeviceMemory> memory_;
};

/// Random cases for a kernel: in the directions it has, around its own tile sizes.
CaseSpace space_for(const Kernel& kernel, std::optional<Direction> direction = std::nullopt);

/// Resolves each request as select_kernels does, without loading a library into this process unless in_process is set.
std::vector<Subject> select_subjects(const std::vector<std::string>& requests, const WorkerOptions& options);

}  // namespace attest::tools

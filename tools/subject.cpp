// SPDX-License-Identifier: Apache-2.0
#include "tools/subject.h"

#include <omp.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "tools/builtin.h"
#include "tools/interrupt.h"

namespace attest::tools {
namespace {

constexpr int kMostDefaultWorkers = 8;
constexpr int kMostWorkers = 64;

int processors() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

WorkerLimits limits_of(const WorkerOptions& options) {
  WorkerLimits limits;
  limits.seconds = options.timeout;
  limits.memory = options.memory_limit;
  limits.cancelled = interrupted;
  return limits;
}

}  // namespace

void add_worker_options(CLI::App& command, WorkerOptions& options) {
  command.add_option("--workers", options.workers, "kernel processes at a time, with a thread each (default: one for each processor, at most 8); results are the same for any number")
      ->check(CLI::Range(1, kMostWorkers));
  CLI::Option* in_process = command.add_flag("--in-process", options.in_process, "run the kernel in this process, for debuggers and sanitizers; a crash is the end of it");
  in_process->excludes("--workers");
  command.add_option("--timeout", options.timeout, "seconds that one call of a kernel may take (default 20)")
      ->check(CLI::PositiveNumber)->excludes(in_process);
  command.add_option("--memory-limit", options.memory_limit, "host memory that a kernel may take beside its buffers, for example 512MB (default 4GB)")
      ->transform(CLI::AsSizeValue(false))->excludes(in_process);
}

Subject::Subject(const std::string& request, const WorkerOptions& options) : request_(request), options_(options) {
  if (options.in_process) {
    kernel_ = std::make_unique<Kernel>(select_kernels({request}, builtin_kernels()).at(0));
    memory_ = memory_for(*kernel_);
    return;
  }
  threads_ = static_cast<std::size_t>(options.workers > 0 ? options.workers : std::min(processors(), kMostDefaultWorkers));
  workers_.resize(threads_);
}

void Subject::open(std::size_t thread) {
  if (workers_[thread] == nullptr) workers_[thread] = std::make_unique<WorkerKernel>(request_, limits_of(options_));
}

const Kernel& Subject::kernel(std::size_t thread) {
  if (options_.in_process) return *kernel_;
  open(thread);
  return workers_[thread]->kernel();
}

DeviceMemory& Subject::memory(std::size_t thread) {
  if (options_.in_process) return *memory_;
  open(thread);
  return workers_[thread]->memory();
}

TransportCost Subject::transport() const {
  TransportCost all;
  for (const auto& worker : workers_) {
    if (worker == nullptr) continue;
    all.calls += worker->calls();
    all.seconds += worker->call_seconds();
    all.kernel_seconds += worker->kernel_seconds();
  }
  return all;
}

void Subject::share_processors() const { omp_set_num_threads(std::max(1, processors() / static_cast<int>(threads_))); }

CaseSpace space_for(const Kernel& kernel, std::optional<Direction> direction) {
  CaseSpace space;
  if (!kernel.has(Direction::both)) space.direction = kernel.has(Direction::forward) ? Direction::forward : Direction::backward;
  if (direction) space.direction = *direction;
  Problem plain;
  plain.direction = space.direction;
  try {
    if (!kernel.why_unsupported(plain).empty()) return space;
    const attest_numerics numerics = kernel.numerics(plain);
    for (const std::int64_t tile : {numerics.key_tile, numerics.query_tile}) {
      if (tile >= 2 && tile <= space.longest) space.tiles.push_back(tile);
    }
  } catch (const KernelFailure&) {
    // Its cases will say so; around the usual tiles.
  }
  return space;
}

std::vector<Subject> select_subjects(const std::vector<std::string>& requests, const WorkerOptions& options) {
  const std::vector<Kernel> builtin = builtin_kernels();
  std::vector<std::string> names;
  if (requests.empty()) {
    for (const Kernel& kernel : builtin) names.push_back(kernel.name());
  }
  for (const std::string& request : requests) {
    const bool is_library = request.find('/') != std::string::npos || request.find(".so") != std::string::npos || std::filesystem::exists(request);
    if (options.in_process || !is_library) {
      // Throws where there is no such kernel.
      for (const Kernel& kernel : select_kernels({request}, builtin)) names.push_back(kernel.request());
    } else {
      for (const std::string& name : kernel_requests(request, limits_of(options))) names.push_back(name);
    }
  }
  std::vector<Subject> subjects;
  for (const std::string& name : names) subjects.emplace_back(name, options);
  return subjects;
}

}  // namespace attest::tools

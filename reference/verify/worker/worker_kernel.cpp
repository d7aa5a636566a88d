// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/worker/worker_kernel.h"

#include <fmt/format.h>

#include "reference/problem/invalid_request.h"
#include "reference/verify/worker/remote_table.h"
#include "reference/verify/worker/worker_memory.h"

namespace attest {
namespace {

constexpr std::size_t kMostKernels = 256;

std::vector<KernelFacts> ask(WorkerProcess& process, const std::string& request) {
  Arena& arena = process.arena();
  auto* facts = static_cast<KernelFacts*>(arena.allocate(kMostKernels * sizeof(KernelFacts)));
  Request order;
  order.order = Order::describe;
  order.at = facts;
  order.bytes = kMostKernels;
  try {
    const std::int64_t count = process.call(order, "loading it").value;
    return {facts, facts + std::min<std::int64_t>(count, kMostKernels)};
  } catch (const KernelFailure& failure) {
    if (failure.kind() == FailureKind::cancelled) throw;
    throw InvalidRequest("kernel", fmt::format("'{}'", request), fmt::format("a library that can be loaded ({})", failure.what()));
  }
}

}  // namespace

WorkerKernel::WorkerKernel(std::string request, WorkerLimits limits, std::string executable)
    : process_(std::make_shared<WorkerProcess>(request, std::move(limits), std::move(executable))) {
  const std::vector<KernelFacts> facts = ask(*process_, request);
  if (facts.size() != 1) {
    throw InvalidRequest("kernel", fmt::format("'{}', which names {} kernels", request, facts.size()), "one kernel, PATH.so:NAME");
  }
  auto table = std::make_shared<RemoteTable>(process_, facts[0]);
  kernel_ = std::make_unique<Kernel>(table->get(), facts[0].origin, table);
  memory_ = kernel_->on_cuda() ? make_worker_device_memory(process_) : make_arena_memory(process_);
}

std::vector<std::string> kernel_requests(const std::string& request, const WorkerLimits& limits, const std::string& executable) {
  WorkerProcess process(request, limits, executable);
  std::vector<std::string> names;
  for (const KernelFacts& facts : ask(process, request)) {
    const bool built_in = std::string(facts.origin) == kBuiltIn;
    names.push_back(built_in ? facts.name : fmt::format("{}:{}", facts.origin, facts.name));
  }
  return names;
}

}  // namespace attest

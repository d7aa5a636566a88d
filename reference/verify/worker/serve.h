// SPDX-License-Identifier: Apache-2.0
// The worker's side: a process that does what its owner orders, until the owner is gone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "reference/problem/device_memory.h"
#include "reference/verify/kernel.h"

namespace attest {

/// How a worker finds what it runs.
struct WorkerTools {
  std::function<std::vector<Kernel>(const std::string& request)> select;
  std::function<std::unique_ptr<DeviceMemory>(const Kernel& kernel)> memory_for;
};

/// Serves over the files of protocol.h; `arena` is where the owner has its arena. Returns the exit code.
int serve_kernels(const std::string& request, std::uint64_t arena, const WorkerTools& tools);

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// DeviceMemory of a kernel that runs in a worker.
#pragma once

#include <memory>

#include "reference/problem/device_memory.h"
#include "reference/verify/worker/worker_process.h"

namespace attest {

/// Host memory that both processes see.
std::unique_ptr<DeviceMemory> make_arena_memory(std::shared_ptr<WorkerProcess> process);

/// Memory of the device, which the worker owns: every operation is a message, and data goes through the arena.
std::unique_ptr<DeviceMemory> make_worker_device_memory(std::shared_ptr<WorkerProcess> process);

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// What a worker and its owner say to each other: one request, one reply, over a socket that keeps messages apart.
// Pointers are into the arena, or into the device's memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reference/problem/kernel_abi.h"

namespace attest {

enum class Order : std::int32_t {
  describe,   // at = KernelFacts[bytes]; value: how many there are
  supports,   // at = attest_problem, text = reason
  numerics,   // at = attest_problem, to = attest_numerics
  workspace,  // at = attest_problem, number = direction; value: bytes
  forward,    // at = attest_call
  backward,
  // Memory of a device; with none, the owner works in the arena itself.
  allocate,     // bytes; value: address
  release,      // at
  upload,       // to = device, at = arena, bytes
  download,     // to = arena, at = device, bytes
  fill,         // to = device, number = pattern, bytes
  synchronize,
  device_name,  // text
};

struct Request {
  Order order{};
  std::int32_t kernel = 0;  // which of the library
  std::int64_t number = 0;
  void* at = nullptr;
  void* to = nullptr;
  std::size_t bytes = 0;
};

enum class Ending : std::int32_t { done, invalid_request, exception, device_error, left_processes };

struct Reply {
  Ending ending = Ending::done;
  std::int64_t value = 0;
  double seconds = 0;  // of forward and backward: the kernel alone, on a device to its end
  char text[3][512] = {};  // of exceptions: what(); of InvalidRequest: field, value, allowed; of DeviceError: call, reason
};

/// What a kernel's table says of itself.
struct KernelFacts {
  char name[128] = {};
  char description[512] = {};
  char origin[4096] = {};
  std::int32_t device = 0;
  std::int32_t directions = 0;
  std::int32_t has_workspace = 0;
  attest_conventions conventions{};
};

// The worker's files.
constexpr int kSocketFile = 3;
constexpr int kArenaFile = 4;

}  // namespace attest

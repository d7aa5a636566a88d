// SPDX-License-Identifier: Apache-2.0
// One buffer of a Placement, between its guard bands. Internal to placement*.cpp.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "reference/verify/placement.h"

namespace attest {

inline constexpr std::size_t kGuardBytes = 512;  // before and after each buffer; keeps its 256-byte alignment
inline constexpr std::byte kGuardPattern{0xA5};
// All ones is a NaN in every storage type, and not the one that arithmetic produces.
inline constexpr std::byte kPoison{0xFF};

struct Placement::Buffer {
  std::string name;
  bool output = false;
  std::vector<std::byte> image;  // guard, storage, guard: what was put on the device
  std::vector<std::byte> got;    // the same range, read back
  std::byte* device = nullptr;   // start of the leading guard

  std::size_t bytes() const { return image.size() - 2 * kGuardBytes; }
  std::byte* storage() { return image.data() + kGuardBytes; }
  void* data() const { return device + kGuardBytes; }
};

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/kernel_failure.h"

#include <array>

namespace attest {

std::string_view name_of(FailureKind kind) {
  constexpr std::array<std::string_view, 12> names = {"crash",  "abort",  "stack overflow", "exit",      "hang",   "output",
                                                      "memory", "processes", "exception",   "device", "status", "cancelled"};
  return names[static_cast<std::size_t>(kind)];
}

}  // namespace attest

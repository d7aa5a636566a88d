// SPDX-License-Identifier: Apache-2.0
// The one exception for a kernel that did not come back with a status: it crashed, hung, threw, ended its process.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace attest {

enum class FailureKind : std::uint8_t {
  crash,           // a signal
  abort,           // SIGABRT: abort(), a failed assertion, damage that the allocator found
  stack_overflow,
  exit,            // ended its process
  hang,            // longer than the limit
  output,          // printed more than the limit
  memory,          // took more memory than the limit
  processes,       // left processes of its own behind
  exception,       // a C++ exception out of the ABI
  device,          // an error of the device, after which its context is of no use
  status,          // came back with a status that is neither ATTEST_OK nor ATTEST_REFUSED, or refused after writing
  cancelled,       // ended from outside, by an interrupt
};
std::string_view name_of(FailureKind kind);

class KernelFailure : public std::runtime_error {
 public:
  KernelFailure(FailureKind kind, const std::string& what) : std::runtime_error(what), kind_(kind) {}
  FailureKind kind() const { return kind_; }

 private:
  FailureKind kind_;
};

}  // namespace attest

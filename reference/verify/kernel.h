// SPDX-License-Identifier: Apache-2.0
// A kernel under test: a table of the kernel ABI, built in or from a shared library.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "reference/problem/kernel_abi.h"
#include "reference/problem/problem.h"

namespace attest {

/// The origin of a kernel that ships with Attest.
inline constexpr const char* kBuiltIn = "built in";

class Kernel {
 public:
  /// Throws InvalidRequest("kernel", ...) where the table is not usable: other ABI version, missing names or functions.
  explicit Kernel(const attest_kernel* table, std::string origin = kBuiltIn,
                  std::shared_ptr<void> library = nullptr);

  const attest_kernel& table() const { return *table_; }
  std::string name() const { return table_->name; }
  std::string description() const { return table_->description; }
  /// "built in" or the path of its library.
  const std::string& origin() const { return origin_; }
  /// What --kernel takes to find it again: its name, or PATH:NAME.
  std::string request() const { return origin_ == kBuiltIn ? name() : origin_ + ":" + name(); }
  bool on_cuda() const { return table_->device == ATTEST_CUDA; }
  bool has(Direction direction) const;

  /// Empty where the kernel will run it, else the kernel's reason, or that it lacks the direction.
  std::string why_unsupported(const Problem& problem) const;
  attest_numerics numerics(const Problem& problem) const;

 private:
  const attest_kernel* table_;
  std::string origin_;
  std::shared_ptr<void> library_;  // keeps the code loaded
};

/// Kernels of a shared library, all or the one named. `request` is PATH or PATH:NAME. Throws InvalidRequest("kernel", ...).
std::vector<Kernel> load_kernels(const std::string& request);

/// Resolves each request, a name of `builtin` or a library; no request means all of `builtin`.
std::vector<Kernel> select_kernels(const std::vector<std::string>& requests, std::span<const Kernel> builtin);

}  // namespace attest

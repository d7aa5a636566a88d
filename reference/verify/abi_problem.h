// SPDX-License-Identifier: Apache-2.0
// A Problem in the words of the kernel ABI.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/problem/kernel_abi.h"
#include "reference/problem/problem.h"

namespace attest {

/// Owns the arrays that the attest_problem points at.
class AbiProblem {
 public:
  explicit AbiProblem(const Problem& problem);
  AbiProblem(const AbiProblem&) = delete;
  AbiProblem& operator=(const AbiProblem&) = delete;

  const attest_problem* get() const { return &abi_; }

 private:
  std::vector<std::int64_t> seq_q_;  // [B]
  std::vector<std::int64_t> seq_k_;  // [B]
  attest_problem abi_{};
};

std::int32_t abi_directions(Direction direction);

}  // namespace attest

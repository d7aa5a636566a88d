// SPDX-License-Identifier: Apache-2.0
// Makes a failing case smaller: fewer sequences and heads, shorter lengths, narrower heads, features off, plainer values,
// one change at a time, as long as it still fails in the same way.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/verify/check.h"

namespace attest {

struct ShrinkOptions {
  double seconds = 10;              // after which the smallest case so far is given
  std::int64_t most_tries = 20000;  // so that the answer is the same on a slow machine unless time runs out
};

struct Shrunk {
  Verdict verdict;        // of the smallest case
  std::int64_t tries = 0;
  bool finished = false;  // no single change makes it smaller; false where time ran out
};

/// In which ways a verdict fails: "check NAME" of its findings, "value of TENSOR", "error KIND", "untrusted"; empty where it
/// does not.
std::vector<std::string> failures_of(const Verdict& verdict);

/// Single simplifications of a problem, the ones that take most away first. All are valid problems.
std::vector<Problem> simpler(const Problem& problem);

/// `failing` is a verdict with a failure; a smaller case fails in the same way if they have one failure in common.
Shrunk shrink(const Kernel& kernel, const Verdict& failing, DeviceMemory& memory, const CheckOptions& check_options,
              const ShrinkOptions& options = {});

}  // namespace attest

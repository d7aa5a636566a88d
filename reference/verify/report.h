// SPDX-License-Identifier: Apache-2.0
// Verdicts as text for people, as JSON lines and as JUnit XML for machines.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "reference/verify/verdict.h"

namespace attest {

/// The command that repeats a case.
std::string repeat_command(const Verdict& verdict);

/// A block for any verdict that is not pass: state, command, tensors, place, want, got, diff, bound, score, cluster.
std::string describe(const Verdict& verdict);

/// One JSON object, without line breaks. Non-finite numbers are strings ("nan", "inf", "-inf").
std::string json_line(const Verdict& verdict);

/// A JUnit document; one suite per kernel.
std::string junit_xml(std::span<const Verdict> verdicts);

/// Counts of states by kernel and direction ("forward": o and lse, "backward": gradients), and the largest scores.
class Summary {
 public:
  void add(const Verdict& verdict);
  /// Kernels × directions × states.
  std::string table() const;
  std::int64_t count(State state) const;
  std::int64_t ran() const;  // cases that were judged or failed to run
  /// 0 all pass; 1 any fail, untrusted or error, or nothing ran.
  int exit_code() const;

 private:
  struct Row {
    std::map<State, std::int64_t> states;
    double score = 0;
  };
  std::vector<std::string> order_;                       // kernels as they came
  std::map<std::pair<std::string, std::string>, Row> rows_;  // by kernel, direction
  std::map<State, std::int64_t> cases_;
};

}  // namespace attest

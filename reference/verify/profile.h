// SPDX-License-Identifier: Apache-2.0
// What the cases of a run have cost, by phase and by check, as a table and as JSON (`attest verify --profile`).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "reference/verify/case_cost.h"
#include "reference/verify/verdict.h"

namespace attest {

/// What passed between the cases' threads and the kernel's processes.
struct TransportCost {
  std::int64_t calls = 0;     // messages that were answered
  double seconds = 0;         // from sending one to its answer, on the clock, over all threads
  double kernel_seconds = 0;  // of them in the kernel's own functions
};

class Profile {
 public:
  explicit Profile(std::string kernel) : kernel_(std::move(kernel)) {}

  void add(const Verdict& verdict);
  /// The whole run: time on the clock, and processor time of all threads and of the kernel's ended processes.
  void finish(double seconds, double cpu_seconds, const TransportCost& transport);

  std::int64_t cases() const { return cases_; }
  std::string table() const;
  /// One JSON object; times in seconds, summed over the cases.
  std::string json() const;

 private:
  struct CheckCost {
    std::int64_t cases = 0;  // that the check was run on
    Cost cost;
  };

  std::string kernel_;
  std::int64_t cases_ = 0;
  CaseCost cost_;
  std::map<std::string, CheckCost> checks_;
  double seconds_ = 0;
  double cpu_seconds_ = 0;
  TransportCost transport_;
};

}  // namespace attest

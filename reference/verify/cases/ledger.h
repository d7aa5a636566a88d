// SPDX-License-Identifier: Apache-2.0
// What a run has covered of a kernel: cases by feature value, combinations of values that no case had and why, what was
// declined, skipped and waived, and what each check said; as a table and as JSON.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "reference/verify/cases/case_list.h"
#include "reference/verify/cases/covering_array.h"
#include "reference/verify/verdict.h"

namespace attest {

class Ledger {
 public:
  /// Combinations of `strength` feature values are counted: 2 or 3.
  Ledger(std::string kernel, const CaseSpace& space, int strength);

  void add(const Verdict& verdict);
  /// What the list of the run knows beside its first `count` cases: what was declined, why combinations could not be had.
  void finish(const CaseList& list, std::int64_t count);

  /// A few lines: how many combinations the cases had, and the first that they had not.
  std::string summary() const;
  std::string table() const;
  /// One JSON object.
  std::string json() const;

  std::int64_t covered() const { return combinations_.covered(); }
  /// Combinations that no case had although nothing excludes them.
  const std::vector<Unreached>& missing() const { return missing_; }

 private:
  struct Count {
    std::int64_t ran = 0;     // judged, or failed to run
    std::int64_t bad = 0;     // fail, untrusted or error
    std::int64_t waived = 0;
    void add(State state);
  };
  struct CheckCount {
    std::map<std::string, std::int64_t> outcomes;
    std::map<std::string, std::int64_t> reasons;  // of not applicable and untrusted
  };

  std::string kernel_;
  CaseSpace space_;
  int strength_;
  CoveringArray combinations_;
  std::map<std::string, std::int64_t> states_;
  std::vector<std::vector<Count>> values_;          // by feature and value
  std::map<std::string, Count> families_;           // exact ones too
  std::map<std::string, CheckCount> checks_;
  std::map<std::string, std::int64_t> declined_;    // random cases that others took the place of, by reason
  std::map<std::string, std::int64_t> unsupported_; // cases that were to run, by reason
  std::map<std::string, std::int64_t> waived_;      // by what is known of them
  std::vector<Unreached> missing_;
  std::int64_t excluded_ = 0;
};

}  // namespace attest

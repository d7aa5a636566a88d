// SPDX-License-Identifier: Apache-2.0
// The cases of a run that are not stated: those of a covering array first, then random ones, without those that the kernel
// declines. Case n follows from space, seed and kernel alone, so that shards and threads take theirs from one list.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reference/verify/cases/covering_cases.h"
#include "reference/verify/generate.h"
#include "reference/verify/kernel.h"
#include "reference/verify/verdict.h"

namespace attest {

class CaseList {
 public:
  /// `strength` of the covering array: 2 for pairs, 3 for triples of feature values, 0 for random cases alone.
  CaseList(CaseSpace space, std::uint64_t seed, int strength);

  /// Case `n`, from any thread, which lends its `kernel` to ask what is declined; nothing where the kernel declines too many
  /// on end. A kernel that does not survive being asked is taken to accept: its case will show it.
  std::optional<Problem> at(std::int64_t n, const Kernel& kernel);

  const CaseSpace& space() const { return space_; }
  /// Complete after the first at().
  CoveringCases covering() const;
  /// How often each reason was given for declining what was drawn on the way to the first `count` cases.
  std::map<std::string, std::int64_t> declined(std::int64_t count) const;

 private:
  void open(const Kernel& kernel);
  std::string why_declined(const Problem& problem, const Kernel& kernel);

  CaseSpace space_;
  std::uint64_t seed_;
  int strength_;
  mutable std::mutex mutex_;
  bool opened_ = false;
  bool asks_ = true;
  CoveringCases covering_;
  std::vector<Problem> cases_;
  std::uint64_t drawn_ = 0;
  std::vector<std::pair<std::int64_t, std::string>> declined_;  // the case that was looked for, and the reason
};

/// What stands for the verdict of a case that a list no longer has: unsupported, for no reason.
Verdict end_of_list();
bool is_end_of_list(const Verdict& verdict);

}  // namespace attest

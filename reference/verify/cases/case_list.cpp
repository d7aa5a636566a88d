// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/cases/case_list.h"

#include <utility>

#include "reference/verify/check.h"
#include "reference/verify/kernel_failure.h"

namespace attest {
namespace {

// A kernel that declines this many random cases on end is asked no further.
constexpr int kMostDeclined = 2000;

}  // namespace

CaseList::CaseList(CaseSpace space, std::uint64_t seed, int strength) : space_(std::move(space)), seed_(seed), strength_(strength) {}

std::string CaseList::why_declined(const Problem& problem, const Kernel& kernel) {
  if (!asks_) return "";
  try {
    return why_unjudgeable(kernel, problem);
  } catch (const KernelFailure&) {
    asks_ = false;
    return "";
  }
}

void CaseList::open(const Kernel& kernel) {
  opened_ = true;
  if (strength_ == 0) return;
  covering_ = covering_cases(space_, strength_, seed_, [&](const Problem& problem) { return why_declined(problem, kernel); });
  cases_ = covering_.cases;
}

std::optional<Problem> CaseList::at(std::int64_t n, const Kernel& kernel) {
  const std::lock_guard lock(mutex_);
  if (!opened_) open(kernel);
  for (int on_end = 0; static_cast<std::int64_t>(cases_.size()) <= n;) {
    Problem problem = random_case(space_, seed_, drawn_++);
    if (const std::string reason = why_declined(problem, kernel); !reason.empty()) {
      declined_.emplace_back(cases_.size(), reason);
      if (++on_end == kMostDeclined) return std::nullopt;
      continue;
    }
    on_end = 0;
    cases_.push_back(std::move(problem));
  }
  return cases_[static_cast<std::size_t>(n)];
}

CoveringCases CaseList::covering() const {
  const std::lock_guard lock(mutex_);
  return covering_;
}

std::map<std::string, std::int64_t> CaseList::declined(std::int64_t count) const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, std::int64_t> reasons;
  for (const auto& [looked_for, reason] : declined_) reasons[reason] += looked_for < count;
  std::erase_if(reasons, [](const auto& entry) { return entry.second == 0; });
  return reasons;
}

Verdict end_of_list() {
  Verdict end;
  end.state = State::unsupported;
  return end;
}

bool is_end_of_list(const Verdict& verdict) { return verdict.state == State::unsupported && verdict.reason.empty(); }

}  // namespace attest

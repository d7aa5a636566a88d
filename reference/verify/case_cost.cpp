// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/case_cost.h"

#include <time.h>

#include <chrono>

namespace attest {
namespace {

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double clock_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

std::string_view name_of(Phase phase) {
  constexpr std::array<std::string_view, kPhases.size()> names = {"generate", "inputs", "oracle",  "bounds", "run",
                                                                  "judge",    "checks", "explain", "shrink"};
  return names[static_cast<std::size_t>(phase)];
}

CostClock::CostClock(Cost& cost) : cost_(cost), start_{clock_seconds(), thread_seconds()} {}

CostClock::~CostClock() { cost_.add({clock_seconds() - start_.seconds, thread_seconds() - start_.cpu}); }

}  // namespace attest

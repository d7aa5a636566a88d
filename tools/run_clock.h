// SPDX-License-Identifier: Apache-2.0
// Time since it was made: on the clock, and of processors, by this process and by those children that have ended.
#pragma once

#include <sys/resource.h>

#include <chrono>

namespace attest::tools {

class RunClock {
 public:
  RunClock() : cpu_start_(cpu_now()) {}
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  double cpu_seconds() const { return cpu_now() - cpu_start_; }

 private:
  using Clock = std::chrono::steady_clock;

  static double cpu_now() {
    double seconds = 0;
    for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
      rusage used{};
      getrusage(who, &used);
      for (const timeval& part : {used.ru_utime, used.ru_stime}) {
        seconds += static_cast<double>(part.tv_sec) + 1e-6 * static_cast<double>(part.tv_usec);
      }
    }
    return seconds;
  }

  Clock::time_point start_ = Clock::now();
  double cpu_start_;
};

}  // namespace attest::tools

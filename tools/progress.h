// SPDX-License-Identifier: Apache-2.0
// Progress of a long run: one line rewritten in place on a terminal, a plain line now and then elsewhere; nothing
// before the run has taken two seconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace attest::tools {

class Progress {
 public:
  /// `expected` cases or `seconds` of time, whichever is not 0, say when the run will end.
  Progress(std::string title, std::int64_t expected, double seconds);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(std::int64_t done, std::int64_t failed);
  /// Removes the line from a terminal, so that other text can be printed.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  std::string title_;
  std::int64_t expected_;
  double seconds_;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point start_;
  Clock::time_point next_;
};

}  // namespace attest::tools

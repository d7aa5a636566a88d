// SPDX-License-Identifier: Apache-2.0
// Evaluates cases 0, 1, 2, ... on several threads and hands the verdicts back in that order, so that what is done with
// them does not depend on the number of threads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "reference/verify/verdict.h"

namespace attest {

class CaseRunner {
 public:
  /// Called by thread `thread` of 0 .. threads - 1; an exception comes out of next().
  using Evaluate = std::function<Verdict(std::size_t thread, std::int64_t position)>;

  /// Positions from `end` on are never evaluated; those before it run ahead of next() by a few for every thread.
  CaseRunner(std::size_t threads, std::int64_t end, Evaluate evaluate);
  /// Waits for the cases under way; their verdicts are dropped.
  ~CaseRunner();
  CaseRunner(const CaseRunner&) = delete;
  CaseRunner& operator=(const CaseRunner&) = delete;

  /// The verdict of the next position; to be called at most `end` times.
  Verdict next();

 private:
  struct Result {
    std::optional<Verdict> verdict;
    std::exception_ptr error;
  };
  void work(std::size_t thread);

  Evaluate evaluate_;
  std::int64_t end_;
  std::int64_t ahead_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::int64_t, Result> results_;
  std::int64_t taken_ = 0;  // positions given to threads
  std::int64_t given_ = 0;  // positions handed back
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace attest

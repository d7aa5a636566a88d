// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/case_runner.h"

#include <chrono>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace attest {
namespace {

Verdict numbered(std::int64_t position) {
  Verdict verdict;
  verdict.reason = std::to_string(position);
  return verdict;
}

TEST(CaseRunner, HandsVerdictsBackInOrderForAnyNumberOfThreads) {
  for (const std::size_t threads : {1, 2, 5}) {
    CaseRunner runner(threads, 100, [](std::size_t, std::int64_t position) {
      // Later ones overtake earlier ones.
      std::this_thread::sleep_for(std::chrono::microseconds(position % 3 == 0 ? 500 : 1));
      return numbered(position);
    });
    for (int n = 0; n < 100; ++n) EXPECT_EQ(runner.next().reason, std::to_string(n));
  }
}

TEST(CaseRunner, AnExceptionComesOutInItsPlace) {
  CaseRunner runner(3, 10, [](std::size_t, std::int64_t position) {
    if (position == 2) throw std::runtime_error("at two");
    return numbered(position);
  });
  EXPECT_EQ(runner.next().reason, "0");
  EXPECT_EQ(runner.next().reason, "1");
  EXPECT_THROW(runner.next(), std::runtime_error);
  EXPECT_EQ(runner.next().reason, "3");
}

TEST(CaseRunner, MayBeLeftBeforeTheEnd) {
  CaseRunner runner(2, std::numeric_limits<std::int64_t>::max(), [](std::size_t, std::int64_t position) { return numbered(position); });
  EXPECT_EQ(runner.next().reason, "0");
}

}  // namespace
}  // namespace attest

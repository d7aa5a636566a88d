// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/gate/paired_times.h"

#include <cmath>

#include <gtest/gtest.h>

namespace attest {
namespace {

std::string judged(const std::vector<PairedLogRatios>& cases) {
  double ratio = 0, noise = 0;
  return judge_times(cases, ratio, noise);
}

TEST(PairedTimes, ACleanDifferenceIsSeenBothWays) {
  const double up = std::log(1.2);
  EXPECT_EQ(judged({{up, up, up}, {up, up, up + 0.01}}), "slower");
  EXPECT_EQ(judged({{-up, -up, -up}, {-up, -up, -up - 0.01}}), "faster");
}

TEST(PairedTimes, NoiseAndSmallDifferencesAreNone) {
  EXPECT_EQ(judged({}), "no difference");
  EXPECT_EQ(judged({{0.03, 0.03, 0.03}}), "no difference");
  EXPECT_EQ(judged({{0.2, -0.9, 1.3, 0.1, -0.6}}), "no difference");
}

TEST(PairedTimes, GivesTheMedianRatio) {
  double ratio = 0, noise = 0;
  judge_times({{std::log(2.0), std::log(2.0), 9}, {std::log(3.0)}, {std::log(2.0)}}, ratio, noise);
  EXPECT_DOUBLE_EQ(ratio, 2);
}

}  // namespace
}  // namespace attest

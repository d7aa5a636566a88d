// SPDX-License-Identifier: Apache-2.0
// The comparison with the slow oracle lets through what is equal within its tolerance and nothing else.
#include "tests/support/agreement.h"

#include <gtest/gtest.h>

#include <limits>

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// One element of o of value 2 that is a sum of magnitude 4, one row that sees nothing, one NaN.
slow::Result want() {
  slow::Result result;
  result.value.o = Values(3, 1, 1);
  result.value.o.data = {2, 0, kNan};
  result.value.lse = {0.5, -kInfinity, kNan};
  result.magnitude.o = Values(3, 1, 1);
  result.magnitude.o.data = {4, 0, kNan};
  result.magnitude.lse = {1, kInfinity, kNan};
  return result;
}

std::string after(void (*change)(Exact&)) {
  Exact got = want().value;
  change(got);
  return first_disagreement(got, want());
}

TEST(Agreement, AcceptsWhatIsWithinTheTolerance) {
  EXPECT_EQ(after([](Exact&) {}), "");
  EXPECT_EQ(after([](Exact& got) { got.o.data[0] += 3.9e-13; }), "");
  EXPECT_EQ(after([](Exact& got) { got.o.data[1] = -0.0; }), "");
}

TEST(Agreement, RejectsAWrongNumber) {
  EXPECT_NE(after([](Exact& got) { got.o.data[0] += 4.1e-13; }), "");
  EXPECT_NE(after([](Exact& got) { got.lse[0] -= 1.1e-13; }), "");
}

TEST(Agreement, RejectsAnythingWhereNothingContributes) {
  EXPECT_NE(after([](Exact& got) { got.o.data[1] = 1e-300; }), "");
}

TEST(Agreement, RejectsAnotherClass) {
  EXPECT_NE(after([](Exact& got) { got.o.data[0] = kNan; }), "");
  EXPECT_NE(after([](Exact& got) { got.o.data[2] = 0; }), "");
  EXPECT_NE(after([](Exact& got) { got.lse[1] = kInfinity; }), "");
  EXPECT_NE(after([](Exact& got) { got.lse[1] = -1e300; }), "");
  EXPECT_NE(after([](Exact& got) { got.lse[1] = kNan; }), "");
}

TEST(Agreement, RejectsAMissingElement) {
  EXPECT_NE(after([](Exact& got) { got.lse.pop_back(); }), "");
  EXPECT_NE(after([](Exact& got) { got.dq = Values(1, 1, 1); }), "");
}

TEST(Agreement, AllowsMoreOnlyForLargeScores) {
  slow::Result large = want();
  Exact got = large.value;
  got.o.data[0] += 3.9e-12;
  large.score_magnitude = 16;
  EXPECT_NE(first_disagreement(got, large), "");
  large.score_magnitude = 160;
  EXPECT_EQ(first_disagreement(got, large), "");
}

}  // namespace
}  // namespace attest

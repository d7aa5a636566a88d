// SPDX-License-Identifier: Apache-2.0
// NaN and infinity in the inputs: they reach what they are visible to, and nothing else.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reference/oracle/exact.h"
#include "tests/support/normal_inputs.h"

namespace attest {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Exact with_bad_key(double value, Values Inputs::*tensor, std::int64_t key, Inputs* clean = nullptr) {
  Problem problem = make_problem(130, 130, 4, 4);
  problem.causal = Causal::top_left;
  Inputs inputs = normal_inputs(problem);
  if (clean != nullptr) *clean = inputs;
  (inputs.*tensor).at(key, 0, 1) = value;
  return exact_attention(problem, inputs);
}

TEST(Exact, NanInAKeyReachesTheRowsThatSeeItAndNoOther) {
  Inputs clean;
  const Exact got = with_bad_key(kNan, &Inputs::k, 100, &clean);
  Problem problem = make_problem(130, 130, 4, 4);
  problem.causal = Causal::top_left;
  const Exact want = exact_attention(problem, clean);
  for (int i = 0; i < 130; ++i) {
    for (int c = 0; c < 4; ++c) {
      EXPECT_EQ(std::isnan(got.o.at(i, 0, c)), i >= 100);
      EXPECT_EQ(std::isnan(got.dq.at(i, 0, c)), i >= 100);
      if (i >= 100) continue;
      EXPECT_NEAR(got.o.at(i, 0, c), want.o.at(i, 0, c), 1e-13);
      EXPECT_NEAR(got.dq.at(i, 0, c), want.dq.at(i, 0, c), 1e-13);
    }
    EXPECT_EQ(std::isnan(got.lse[i]), i >= 100);
  }
}

TEST(Exact, NanInAValueReachesItsColumnOfTheRowsThatSeeIt) {
  const Exact got = with_bad_key(kNan, &Inputs::v, 100);
  for (int i = 0; i < 130; ++i) {
    EXPECT_EQ(std::isnan(got.o.at(i, 0, 1)), i >= 100);
    EXPECT_FALSE(std::isnan(got.o.at(i, 0, 0)));
    EXPECT_FALSE(std::isnan(got.lse[i]));
  }
}

TEST(Exact, HiddenNanAndInfinityMatterNowhere) {
  for (const double bad : {kNan, kInf, -kInf}) {
    for (Values Inputs::*tensor : {&Inputs::k, &Inputs::v}) {
      Problem problem = make_problem(10, 20, 4, 4);
      problem.causal = Causal::top_left;  // keys 10 and above are hidden from every row
      Inputs inputs = normal_inputs(problem);
      const Exact want = exact_attention(problem, inputs);
      (inputs.*tensor).at(15, 0, 2) = bad;
      const Exact got = exact_attention(problem, inputs);
      for (std::size_t n = 0; n < want.o.data.size(); ++n) EXPECT_NEAR(got.o.data[n], want.o.data[n], 1e-13);
      for (std::size_t n = 0; n < want.dq.data.size(); ++n) EXPECT_NEAR(got.dq.data[n], want.dq.data[n], 1e-13);
      for (std::size_t n = 0; n < want.dk.data.size(); ++n) EXPECT_NEAR(got.dk.data[n], want.dk.data[n], 1e-13);
      for (std::size_t n = 0; n < want.dv.data.size(); ++n) EXPECT_NEAR(got.dv.data[n], want.dv.data[n], 1e-13);
    }
  }
}

TEST(Exact, InfiniteScoreMakesItsRowNan) {
  Problem problem = make_problem(2, 3, 1, 1);
  problem.scale = 1;
  Inputs inputs = normal_inputs(problem);
  inputs.q.data = {1, -1};
  inputs.k.data = {0, kInf, 1};
  const Exact got = exact_attention(problem, inputs);
  EXPECT_TRUE(std::isnan(got.o.data[0]));
  EXPECT_TRUE(std::isnan(got.lse[0]));
  EXPECT_NEAR(got.lse[1], std::log(1 + std::exp(-1.0)), 1e-15);  // -inf: key 1 is hidden from row 1
  EXPECT_TRUE(std::isfinite(got.o.data[1]));
}

}  // namespace
}  // namespace attest

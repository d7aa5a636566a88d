// SPDX-License-Identifier: Apache-2.0
#include "reference/oracle/exponential.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace attest {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Exponential, WithinOneUlpOfLongDouble) {
  std::mt19937_64 random(3);
  for (const double low : {-745.0, -708.0, -40.0, -1.0, -1e-8}) {
    std::uniform_real_distribution<double> draw(low, 0.5);
    for (int n = 0; n < 200000; ++n) {
      const double x = draw(random);
      const long double want = std::exp(static_cast<long double>(x));
      int exponent;
      std::frexp(static_cast<double>(want), &exponent);
      const double ulp = std::ldexp(1.0, std::max(exponent - 53, -1074));
      ASSERT_LE(std::abs(static_cast<double>(exponential(x) - want)), ulp) << x;
    }
  }
}

TEST(Exponential, ExactAtItsEnds) {
  EXPECT_EQ(exponential(0), 1);
  EXPECT_EQ(exponential(-kInf), 0);
  EXPECT_EQ(exponential(-746), 0);
  EXPECT_EQ(exponential(-1e300), 0);
  EXPECT_GT(exponential(-744), 0);
  EXPECT_TRUE(std::isnan(exponential(kNan)));
}

}  // namespace
}  // namespace attest

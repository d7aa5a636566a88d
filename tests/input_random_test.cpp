// SPDX-License-Identifier: Apache-2.0
// The generator of the inputs: frozen words, avalanche, and the normal distribution. All seeds are fixed, so a test
// that passes once passes always; thresholds are set where a sound generator would fail one seed in 10^6 or fewer.
#include "reference/problem/input_random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "reference/problem/inputs.h"

namespace attest {
namespace {

/// A change of these values changes the inputs of every case ever recorded.
TEST(InputRandom, WordsAndNormalsAreFrozen) {
  EXPECT_EQ(random_word(0, 0, 0), 0xBC676A16E215C32F);
  EXPECT_EQ(random_word(1, 2, 3), 0x2FA312029F2D316C);
  const RandomStream stream = RandomStream(42, 7).child(1).child(2);
  EXPECT_EQ(stream.normal(0), 0x1.320b78ed6a39dp-3);
  EXPECT_EQ(stream.normal(123456789), 0x1.222bd00500c81p+0);
  EXPECT_EQ(normal_from_tail(1e-3), 0x1.8b8cbb720447p+1);
}

/// Flipping any bit of the seed, the stream or the index flips each output bit half of the time: 3 x 64 x 64 counts
/// of 20,000 trials, the largest of 12,288 deviations below 6 sigma (false alarm 2e-5 if independent).
TEST(InputRandom, EveryInputBitReachesEveryOutputBit) {
  constexpr int kTrials = 20'000;
  for (int argument = 0; argument < 3; ++argument) {
    for (int bit = 0; bit < 64; ++bit) {
      const std::uint64_t flip = std::uint64_t{1} << bit;
      std::array<int, 64> flipped{};
      for (std::uint64_t n = 0; n < kTrials; ++n) {
        const std::uint64_t seed = n % 10, tag = n / 10 % 10, index = n / 100;
        const std::uint64_t difference =
            random_word(seed, tag, index) ^ random_word(seed ^ (argument == 0 ? flip : 0),
                                                        tag ^ (argument == 1 ? flip : 0),
                                                        index ^ (argument == 2 ? flip : 0));
        for (int out = 0; out < 64; ++out) flipped[static_cast<std::size_t>(out)] += difference >> out & 1;
      }
      for (const int count : flipped) {
        ASSERT_LT(std::abs(count - kTrials / 2), 6 * std::sqrt(kTrials / 4.0))
            << "argument " << argument << " bit " << bit;
      }
    }
  }
}

TEST(InputRandom, StreamsDifferInEveryArgumentAndDoNotRepeat) {
  std::vector<std::uint64_t> words;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (std::uint64_t tag = 0; tag < 20; ++tag) {
      for (std::uint64_t index = 0; index < 1000; ++index) words.push_back(random_word(seed, tag, index));
    }
  }
  std::sort(words.begin(), words.end());
  EXPECT_EQ(std::adjacent_find(words.begin(), words.end()), words.end());
}

TEST(InputRandom, InverseNormalInvertsTheErrorFunction) {
  for (double tail = 0.5; tail > 0x1p-54; tail *= 0.97) {
    const double x = normal_from_tail(tail);
    const double back = 0.5 * std::erfc(x / std::sqrt(2.0));
    EXPECT_NEAR(back / tail, 1, 2e-15 * (1 + x * x)) << tail;  // erfc itself loses about x^2 ulps
  }
  EXPECT_EQ(normal_from_tail(0.5), 0);
}

/// Moments of 10^6 values within 5 standard errors (false alarm below 1e-5 for the seven together).
TEST(InputRandom, NormalMomentsAndTails) {
  constexpr int kCount = 1'000'000;
  std::vector<double> values(kCount);
  RandomStream(3, 1).fill_normal(values);
  double sum1 = 0, sum2 = 0, sum3 = 0, sum4 = 0, lag = 0;
  int beyond2 = 0, beyond4 = 0;
  for (std::size_t n = 0; n < values.size(); ++n) {
    const double x = values[n];
    sum1 += x, sum2 += x * x, sum3 += x * x * x, sum4 += x * x * x * x;
    if (n > 0) lag += x * values[n - 1];
    beyond2 += std::abs(x) > 2;
    beyond4 += std::abs(x) > 4;
  }
  const double root = std::sqrt(static_cast<double>(kCount));
  EXPECT_LT(std::abs(sum1), 5 * root);
  EXPECT_LT(std::abs(sum2 - kCount), 5 * root * std::sqrt(2.0));
  EXPECT_LT(std::abs(sum3), 5 * root * std::sqrt(15.0));
  EXPECT_LT(std::abs(sum4 - 3.0 * kCount), 5 * root * std::sqrt(96.0));
  EXPECT_LT(std::abs(lag), 5 * root);
  EXPECT_NEAR(beyond2, 0.0455002639 * kCount, 5 * root * std::sqrt(0.0455));
  EXPECT_NEAR(beyond4, 6.334248e-5 * kCount, 5 * std::sqrt(63.0));
}

/// Chi-square of 256 bins over 256,000 values: 255 degrees of freedom, limit at 5 sigma.
TEST(InputRandom, UniformsFillTheirBinsEvenly) {
  const RandomStream stream(5, 9);
  std::array<int, 256> bins{};
  for (std::uint64_t n = 0; n < 256'000; ++n) {
    const double x = stream.unit(n);
    ASSERT_GT(x, 0);
    ASSERT_LT(x, 1);
    ++bins[static_cast<std::size_t>(x * 256)];
    ASSERT_LT(std::abs(stream.symmetric(n)), 1);
    const std::int64_t below = stream.below(n, 7);
    ASSERT_TRUE(below >= 0 && below < 7);
  }
  double chi_square = 0;
  for (const int count : bins) chi_square += (count - 1000.0) * (count - 1000.0) / 1000;
  EXPECT_NEAR(chi_square, 255, 5 * std::sqrt(2 * 255.0));
}

TEST(InputRandom, BulkNormalsEqualSingleOnes) {
  const RandomStream stream(11, 13);
  for (const std::size_t count : {0u, 1u, 63u, 64u, 65u, 1000u}) {
    std::vector<double> values(count);
    stream.fill_normal(values);
    for (std::size_t n = 0; n < count; ++n) ASSERT_EQ(values[n], stream.normal(n));
  }
}

}  // namespace
}  // namespace attest

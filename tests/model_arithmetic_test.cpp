// SPDX-License-Identifier: Apache-2.0
// The pieces the models compute with: exp, rounding in bulk, products of tiles.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "reference/models/exponential.h"
#include "reference/models/matmul.h"
#include "reference/models/rounding.h"
#include "reference/models/row_reductions.h"

namespace attest {
namespace {

TEST(ModelExponential, StaysWithinItsDeclaredError) {
  EXPECT_EQ(exponential(0.0f), 1.0f);
  double worst = 0;
  for (std::uint32_t bits = 0; bits < std::bit_cast<std::uint32_t>(87.0f); bits += 97)
    for (const float x : {std::bit_cast<float>(bits), -std::bit_cast<float>(bits)}) {
      const double want = std::exp(static_cast<double>(x));
      worst = std::max(worst, std::abs(exponential(x) - want) / want);
    }
  EXPECT_LT(worst, kExpErrorFloat);
  EXPECT_GT(worst, kExpErrorFloat / 8) << "declared far too loosely";
}

TEST(ModelExponential, HandlesTheEnds) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exponential(-kInfinity), 0.0f);
  EXPECT_EQ(exponential(-104.5f), 0.0f);
  EXPECT_EQ(exponential(kInfinity), kInfinity);
  EXPECT_EQ(exponential(88.8f), kInfinity);
  EXPECT_TRUE(std::isnan(exponential(std::numeric_limits<float>::quiet_NaN())));
  for (float x = -103.9f; x < -87.0f; x += 0.01f)  // subnormal results: half a unit and a bit
    EXPECT_NEAR(exponential(x), std::exp(static_cast<double>(x)),
                0.6 * 0x1p-149 + 0x1p-22 * std::exp(static_cast<double>(x)));
}

TEST(ModelRounding, EqualsTheScalarRoundingOnEveryValueAndTie) {
  for (const Dtype type : {Dtype::f16, Dtype::bf16, Dtype::f8e4m3, Dtype::f8e5m2}) {
    std::vector<float> x;
    for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << (8 * format_of(type).bytes)); ++bits) {
      const auto value = static_cast<float>(decode(type, bits));
      const auto next = static_cast<float>(
          decode(type, bits + 1 == (std::uint64_t{1} << (8 * format_of(type).bytes)) ? bits : bits + 1));
      const float middle = value / 2 + next / 2;
      x.insert(x.end(), {value, middle, std::nextafter(middle, -HUGE_VALF), std::nextafter(middle, HUGE_VALF)});
    }
    std::mt19937 random(1);
    for (int c = 0; c < 100000; ++c) x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    std::vector<float> got = x;
    round_all(type, got.data(), static_cast<std::int64_t>(got.size()));
    for (std::size_t c = 0; c < x.size(); ++c) {
      const double want = round_to(type, static_cast<double>(x[c]));
      if (std::isnan(want) && std::isnan(got[c])) continue;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got[c]), std::bit_cast<std::uint32_t>(static_cast<float>(want)))
          << name_of(type) << " of " << x[c];
    }
  }
}

template <typename Real>
void expect_chains() {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  for (std::int64_t rows : {1, 4, 7})
    for (std::int64_t cols : {1, 3, 8, 13, 32}) {
      const std::int64_t depth = 9;
      std::vector<Real> a(static_cast<std::size_t>(rows * depth)), b(static_cast<std::size_t>(depth * cols)),
          c(static_cast<std::size_t>(rows * cols));
      for (auto* x : {&a, &b, &c})
        for (Real& value : *x) value = static_cast<Real>(normal(random));
      std::vector<Real> want = c;
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < cols; ++j)
          for (std::int64_t k = 0; k < depth; ++k)
            want[static_cast<std::size_t>(i * cols + j)] +=
                a[static_cast<std::size_t>(i * depth + k)] * b[static_cast<std::size_t>(k * cols + j)];
      multiply_add<Real>(rows, cols, depth, {a.data(), depth}, {b.data(), cols}, {c.data(), cols});
      EXPECT_EQ(c, want) << rows << "x" << cols;
    }
}

TEST(ModelProducts, AreOneChainPerElementWhateverTheBlocking) {
  expect_chains<float>();
  expect_chains<double>();
}

TEST(ModelReductions, KeepNan) {
  for (std::int64_t at = 0; at < 20; ++at) {
    std::vector<float> x(20, 1.0f);
    x[static_cast<std::size_t>(at)] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(row_max(x.data(), 20)));
    EXPECT_TRUE(std::isnan(row_sum(x.data(), 20)));
    x[static_cast<std::size_t>(at)] = 3.0f;
    EXPECT_EQ(row_max(x.data(), 20), 3.0f);
    EXPECT_EQ(row_sum(x.data(), 20), 22.0f);
  }
}

}  // namespace
}  // namespace attest

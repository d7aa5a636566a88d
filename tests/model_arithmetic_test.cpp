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
#include "reference/models/tensor_core.h"

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

/// <a, 1> added to c as `how` adds.
float tensor_core_sum(const attest_accumulation& how, const std::vector<float>& a, float c = 0) {
  const std::vector<float> ones(a.size(), 1.0f);
  const auto depth = static_cast<std::int64_t>(a.size());
  multiply_add_blocks(how, 1, 1, depth, {a.data(), depth}, {ones.data(), 1}, {&c, 1}, nullptr, false);
  return c;
}

// Terms of 2^-11 survive only where their block holds no 1: within a block all are cut at 2^-10 of the largest.
TEST(ModelTensorCore, CutsABlockAtItsLargestTerm) {
  std::vector<float> terms(8, 0x1p-11f);
  terms.push_back(1);
  EXPECT_EQ(tensor_core_sum({4, 10, 0x1p-23, 1, 0}, terms), 1 + 0x1p-8f);   // two blocks of small ones, then 1
  EXPECT_EQ(tensor_core_sum({8, 10, 0x1p-23, 1, 0}, terms), 1 + 0x1p-8f);   // one block of small ones, then 1
  EXPECT_EQ(tensor_core_sum({16, 10, 0x1p-23, 1, 0}, terms), 1.0f);         // all in the block of the 1
  EXPECT_EQ(tensor_core_sum({16, 11, 0x1p-23, 1, 0}, terms), 1 + 0x1p-8f);  // one more bit kept
  EXPECT_EQ(tensor_core_sum({16, 0, 0x1p-23, 1, 0}, terms), 1 + 0x1p-8f);   // all bits kept
  terms.pop_back();
  for (const std::int32_t block : {4, 8, 16})  // the accumulator takes part in the alignment
    EXPECT_EQ(tensor_core_sum({block, 10, 0x1p-23, 1, 0}, terms, 1), 1.0f) << block;
}

TEST(ModelTensorCore, TruncatesTowardZeroOnBothSides) {
  const std::vector<float> small(4, 0x1.8p-11f);  // each is cut to 2^-11, where 11 bits are kept beside a 1
  EXPECT_EQ(tensor_core_sum({4, 11, 0x1p-23, 1, 0}, small, 1), 1 + 0x1p-9f);
  EXPECT_EQ(tensor_core_sum({4, 11, 0x1p-23, 1, 0}, {-0x1.8p-11f, -0x1.8p-11f, -0x1.8p-11f, -0x1.8p-11f}, -1),
            -1 - 0x1p-9f);
  // The normalised sum: 1 + 3 * 2^-25 truncates to 1 and rounds to 1 + 2^-23.
  EXPECT_EQ(tensor_core_sum({4, 0, 0x1p-23, 1, 0}, {1, 0x1.8p-24f}), 1.0f);
  EXPECT_EQ(tensor_core_sum({4, 0, 0x1p-24, 0, 0}, {1, 0x1.8p-24f}), 1 + 0x1p-23f);
}

TEST(ModelTensorCore, AlignsByTheExponentsOfTheFactors) {
  // 1.5 * 1.5 = 2.25 has the significand 2.25 and the exponent 0: a term of 2^-10 beside it keeps its bit.
  const std::vector<float> a = {1.5f, 0x1p-10f}, b = {1.5f, 1.0f};
  float c = 0;
  multiply_add_blocks({4, 10, 0x1p-23, 1, 0}, 1, 1, 2, {a.data(), 2}, {b.data(), 1}, {&c, 1}, nullptr, false);
  EXPECT_EQ(c, 2.25f + 0x1p-10f);
}

TEST(ModelTensorCore, PromotesPartialSums) {
  // 1, then 2^-11 eight times: cut one by one in one accumulator, whole in partial sums of their own.
  std::vector<float> terms = {1, 0, 0, 0};
  terms.insert(terms.end(), 8, 0x1p-11f);
  EXPECT_EQ(tensor_core_sum({4, 10, 0x1p-23, 1, 0}, terms), 1.0f);
  EXPECT_EQ(tensor_core_sum({4, 10, 0x1p-23, 1, 4}, terms), 1 + 0x1p-8f);
}

// docs/numerics.md, Sums: ceil(n / block) steps, each ((block + 1) 2^-f + u_norm) of the sum of magnitudes at most.
TEST(ModelTensorCore, StaysWithinItsWorstCase) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const std::int32_t block : {4, 8, 16})
    for (const std::int32_t bits : {11, 23, 25})
      for (const std::size_t n : {1u, 7u, 64u, 300u}) {
        std::vector<float> a(n);
        double want = 0, size = 0;
        for (float& x : a) x = normal(random), want += x, size += std::abs(x);
        const double steps = std::ceil(static_cast<double>(n) / block);
        const double allowed = steps * ((block + 1) * std::ldexp(1.0, -bits) + 0x1p-23) * size;
        EXPECT_LE(std::abs(tensor_core_sum({block, bits, 0x1p-23, 1, 0}, a) - want), allowed) << block << " " << n;
      }
}

TEST(ModelTensorCore, LeavesOutWhatIsHiddenAndKeepsNan) {
  constexpr float kHidden = -std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> a = {2, 0, 3}, b = {1, kNan, 1}, seen = {0, kHidden, 0};
  const Matrix<const float> hidden{seen.data(), 3};
  float c = 0;
  multiply_add_blocks({16, 25, 0x1p-23, 1, 0}, 1, 1, 3, {a.data(), 3}, {b.data(), 1}, {&c, 1}, &hidden, false);
  EXPECT_EQ(c, 5.0f);
  multiply_add_blocks({16, 25, 0x1p-23, 1, 0}, 1, 1, 3, {a.data(), 3}, {b.data(), 1}, {&c, 1}, nullptr, false);
  EXPECT_TRUE(std::isnan(c));
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

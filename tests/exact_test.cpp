// SPDX-License-Identifier: Apache-2.0
// The exact oracle against values worked out by hand, the rules for empty rows and non-finite inputs, and bitwise
// independence of the number of threads.
#include "reference/oracle/exact.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "reference/oracle/visibility.h"
#include "tests/support/normal_inputs.h"
#include "tests/support/peak_memory.h"

namespace attest {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Problem seed_problem() {
  Problem problem = make_problem(5, 5, 3, 2);
  problem.direction = Direction::forward;
  return problem;
}

Inputs seed_inputs() {
  Inputs inputs = normal_inputs(seed_problem());
  inputs.q.data = {3, -2, 1, 0.5, 4, -1, -3, 1, 2, 2, 2, -4, 1, -5, 3};
  inputs.k.data = {2, 1, -1, -1, 3, 2, 4, -2, 0, 0, 1, 5, -3, 2, 1};
  inputs.v.data = {1, 0, 0, 2, 3, -1, -2, 4, 5, 1};
  return inputs;
}

bool same_bits(const std::vector<double>& x, const std::vector<double>& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0;
}

// ---- the seed example -------------------------------------------------------------------------------------------

TEST(Exact, SeedExampleMatchesTheFormulasInLongDouble) {
  const Inputs inputs = seed_inputs();
  for (const Causal causal : {Causal::none, Causal::top_left}) {
    Problem problem = seed_problem();
    problem.causal = causal;
    const Exact got = exact_attention(problem, inputs);
    for (int i = 0; i < 5; ++i) {
      long double sum = 0, o[2] = {0, 0};
      for (int j = 0; j < (causal == Causal::none ? 5 : i + 1); ++j) {
        long double s = 0;
        for (int c = 0; c < 3; ++c) s += static_cast<long double>(inputs.q.at(i, 0, c)) * inputs.k.at(j, 0, c);
        const long double e = std::exp(s / std::sqrt(3.0L));
        sum += e;
        for (int c = 0; c < 2; ++c) o[c] += e * inputs.v.at(j, 0, c);
      }
      EXPECT_NEAR(got.lse[i], static_cast<double>(std::log(sum)), 1e-13);
      for (int c = 0; c < 2; ++c) EXPECT_NEAR(got.o.at(i, 0, c), static_cast<double>(o[c] / sum), 1e-13);
    }
  }
}

TEST(Exact, SeedExampleRowFourHasTheStatedMaximumAndSum) {
  const Exact got = exact_attention(seed_problem(), seed_inputs());
  EXPECT_NEAR(got.lse[4], 8.082904 + std::log(1.099332), 2e-6);
}

TEST(Exact, FirstCausalRowCopiesTheFirstValue) {
  Problem problem = seed_problem();
  problem.causal = Causal::top_left;
  const Exact got = exact_attention(problem, seed_inputs());
  EXPECT_EQ(got.o.at(0, 0, 0), 1);
  EXPECT_EQ(got.o.at(0, 0, 1), 0);
}

// ---- gradients by hand ------------------------------------------------------------------------------------------

TEST(Exact, GradientsOfUniformAttentionByHand) {
  // q = 0: P = 1/2, dP = (2, 6), delta = 4, dS = (-1, 1), times the scale 1/2.
  Problem problem = make_problem(1, 2, 4, 1);
  Inputs inputs = normal_inputs(problem);
  inputs.q.data = {0, 0, 0, 0};
  inputs.k.data = {1, 2, 3, 4, 5, 5, 5, 5};
  inputs.v.data = {1, 3};
  inputs.d_o.data = {2};
  const Exact got = exact_attention(problem, inputs);
  EXPECT_EQ(got.o.data, (std::vector<double>{2}));
  EXPECT_NEAR(got.lse[0], std::log(2.0), 1e-16);
  EXPECT_EQ(got.dq.data, (std::vector<double>{2, 1.5, 1, 0.5}));
  EXPECT_EQ(got.dk.data, std::vector<double>(8, 0.0));
  EXPECT_EQ(got.dv.data, (std::vector<double>{1, 1}));
}

TEST(Exact, GradientOfLseIsTheProbabilityTimesTheKeys) {
  Problem problem = make_problem(1, 2, 1, 1);
  problem.d_lse = true;
  problem.scale = 1;
  Inputs inputs = normal_inputs(problem);
  inputs.q.data = {0};
  inputs.k.data = {3, 5};
  inputs.d_o.data = {0};
  inputs.d_lse = {1};
  EXPECT_EQ(exact_attention(problem, inputs).dq.data, (std::vector<double>{4}));
}

// Every gradient against central differences of sum(do * o) + sum(d_lse * lse).
double objective(const Problem& problem, const Inputs& inputs) {
  const Exact exact = exact_attention(problem, inputs);
  double sum = 0;
  for (std::size_t n = 0; n < exact.o.data.size(); ++n) sum += exact.o.data[n] * inputs.d_o.data[n];
  for (std::size_t n = 0; n < inputs.d_lse.size(); ++n) sum += exact.lse[n] * inputs.d_lse[n];
  return sum;
}

void expect_derivative(const Problem& problem, Inputs inputs, std::vector<double>& (*of)(Inputs&),
                       const std::vector<double>& got) {
  for (std::size_t n = 0; n < got.size(); ++n) {
    double& x = of(inputs)[n];
    const double before = x;
    x = before + 1e-5;
    const double above = objective(problem, inputs);
    x = before - 1e-5;
    const double below = objective(problem, inputs);
    x = before;
    EXPECT_NEAR(got[n], (above - below) / 2e-5, 2e-8) << "element " << n;
  }
}

TEST(Exact, GradientsAreDerivativesWithSoftcapBiasDropoutAndGroups) {
  Problem problem = make_problem(5, 7, 3, 2, 4, 2);
  problem.softcap = 1.5;
  problem.causal = Causal::bottom_right;
  problem.bias = Bias{{false, true, true, true}, {}, 0};
  problem.d_bias = true;
  problem.d_lse = true;
  problem.dropout = Dropout{0.3, 7, 1};
  Inputs inputs = normal_inputs(problem);
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  inputs.bias = {1, 4, 5, 7, std::vector<double>(4 * 5 * 7)};
  for (double& x : inputs.bias.data) x = normal(random);
  inputs.d_lse.resize(5 * 4);
  for (double& x : inputs.d_lse) x = normal(random);
  const Exact exact = exact_attention(problem, inputs);
  expect_derivative(
      problem, inputs, [](Inputs& x) -> std::vector<double>& { return x.q.data; }, exact.dq.data);
  expect_derivative(
      problem, inputs, [](Inputs& x) -> std::vector<double>& { return x.k.data; }, exact.dk.data);
  expect_derivative(
      problem, inputs, [](Inputs& x) -> std::vector<double>& { return x.v.data; }, exact.dv.data);
  expect_derivative(
      problem, inputs, [](Inputs& x) -> std::vector<double>& { return x.bias.data; }, exact.d_bias.data);
}

TEST(Exact, BiasGradientSumsOverEveryBroadcastShape) {
  Problem problem = make_problem(70, 150, 4, 4, 2, 1);
  problem.seq_q = {70, 3};
  problem.seq_k = {150, 140};
  problem.d_bias = true;
  problem.bias = Bias{{true, true, true, true}, {}, 0};
  Inputs inputs = normal_inputs(problem);
  inputs.bias = {2, 2, 70, 150, std::vector<double>(2 * 2 * 70 * 150, 0.0)};
  const Operand<double> full = exact_attention(problem, inputs).d_bias;
  for (int shape = 0; shape < 16; ++shape) {
    const Broadcast own = {(shape & 1) != 0, (shape & 2) != 0, (shape & 4) != 0, (shape & 8) != 0};
    problem.bias = Bias{own, {}, 0};
    Operand<double> want = {own.batch ? 2 : 1, own.head ? 2 : 1, own.query ? 70 : 1, own.key ? 150 : 1, {}};
    want.data.assign(static_cast<std::size_t>(want.extent_b * want.extent_h * want.extent_q * want.extent_k), 0.0);
    inputs.bias = want;
    for (int b = 0; b < 2; ++b) {
      for (int h = 0; h < 2; ++h) {
        for (int i = 0; i < problem.seq_q[b]; ++i) {
          for (int j = 0; j < problem.seq_k[b]; ++j) want.data[want.index(b, h, i, j)] += full.at(b, h, i, j);
        }
      }
    }
    const Operand<double> got = exact_attention(problem, inputs).d_bias;
    ASSERT_EQ(got.data.size(), want.data.size());
    for (std::size_t n = 0; n < want.data.size(); ++n) ASSERT_NEAR(got.data[n], want.data[n], 1e-12) << shape;
  }
}

// ---- grouped heads, masks, empty rows -----------------------------------------------------------------------------

TEST(Exact, QueryHeadReadsKeyHeadOfItsGroup) {
  const Problem problem = make_problem(1, 1, 1, 1, 6, 2);
  Inputs inputs = normal_inputs(problem);
  inputs.v.data = {10, 20};
  inputs.d_o.data = {1, 2, 4, 8, 16, 32};
  const Exact got = exact_attention(problem, inputs);
  EXPECT_EQ(got.o.data, (std::vector<double>{10, 10, 10, 20, 20, 20}));
  EXPECT_EQ(got.dv.data, (std::vector<double>{7, 56}));
}

TEST(Exact, RowsThatSeeNothingAreZeroWithLseMinusInfinity) {
  Problem problem = make_problem(4, 2, 3, 2);
  problem.causal = Causal::bottom_right;  // rows 0 and 1 see nothing
  const Exact got = exact_attention(problem, normal_inputs(problem));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(got.lse[i], -kInf);
    for (int c = 0; c < 2; ++c) EXPECT_EQ(got.o.at(i, 0, c), 0);
    for (int c = 0; c < 3; ++c) EXPECT_EQ(got.dq.at(i, 0, c), 0);
  }
  EXPECT_TRUE(std::isfinite(got.lse[2]));
}

TEST(Exact, AFirstBlockThatSeesNoKeyComesBeforeAnyScratch) {
  // Bottom-right with more queries than keys: the first 64 rows see nothing, and their block is the first of its thread.
  Problem problem = make_problem(127, 47, 8, 8);
  problem.causal = Causal::bottom_right;
  const Exact exact = exact_attention(problem, normal_inputs(problem));
  EXPECT_EQ(exact.lse[0], -kInf);
  EXPECT_EQ(exact.lse[79], -kInf);
  EXPECT_TRUE(std::isfinite(exact.lse[80]));
  EXPECT_EQ(exact.o.at(79, 0, 0), 0);
}

TEST(Exact, NoKeysAtAllGivesZeroAndMinusInfinity) {
  Problem problem = make_problem(2, 0, 3, 2);
  problem.seq_q = {2, 1};
  problem.seq_k = {0, 3};
  const Exact got = exact_attention(problem, normal_inputs(problem));
  EXPECT_EQ(got.lse[0], -kInf);
  EXPECT_EQ(got.lse[1], -kInf);
  EXPECT_TRUE(std::isfinite(got.lse[2]));
  EXPECT_EQ(got.o.at(1, 0, 1), 0);
}

TEST(Exact, MinusInfinityBiasHidesLikeTheMask) {
  Problem masked = make_problem(3, 4, 2, 2);
  masked.mask = ExplicitMask{};
  Inputs inputs = normal_inputs(masked);
  inputs.mask = {1, 1, 3, 4, {1, 0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 1}};
  Problem biased = make_problem(3, 4, 2, 2);
  biased.bias = Bias{};
  Inputs bias_inputs = inputs;
  bias_inputs.mask = {};
  bias_inputs.bias = {1, 1, 3, 4, std::vector<double>(12)};
  for (int n = 0; n < 12; ++n) bias_inputs.bias.data[n] = inputs.mask.data[n] != 0 ? 0 : -kInf;
  const Exact want = exact_attention(masked, inputs), got = exact_attention(biased, bias_inputs);
  EXPECT_TRUE(same_bits(got.o.data, want.o.data));
  EXPECT_TRUE(same_bits(got.lse, want.lse));
  EXPECT_TRUE(same_bits(got.dq.data, want.dq.data));
  EXPECT_TRUE(same_bits(got.dk.data, want.dk.data));
  EXPECT_TRUE(same_bits(got.dv.data, want.dv.data));
  EXPECT_EQ(got.lse[1], -kInf);
}

TEST(Exact, AllKeysDroppedGivesZeroWithFiniteLse) {
  Problem problem = make_problem(1, 1, 1, 1);
  problem.dropout = Dropout{0.5, 0, 0};
  while (kept(problem, 0, 0, 0, 0)) ++problem.dropout->seed;
  const Exact got = exact_attention(problem, normal_inputs(problem));
  EXPECT_EQ(got.o.data[0], 0);
  EXPECT_TRUE(std::isfinite(got.lse[0]));
}

TEST(Exact, CarefulPathAgreesWithTheFastOne) {
  Problem problem = make_problem(90, 200, 5, 6, 4, 2);
  problem.causal = Causal::bottom_right;
  problem.softcap = 3;
  problem.dropout = Dropout{0.25, 3, 0};
  Inputs inputs = normal_inputs(problem);
  const Exact want = exact_attention(problem, inputs);
  problem.seq_q.push_back(1);  // a neighbour with a huge value sends the whole call down the careful path
  problem.seq_k.push_back(1);
  Inputs longer = normal_inputs(problem, 9);
  for (Values Inputs::*tensor : {&Inputs::q, &Inputs::k, &Inputs::v, &Inputs::d_o}) {
    std::copy((inputs.*tensor).data.begin(), (inputs.*tensor).data.end(), (longer.*tensor).data.begin());
  }
  longer.v.at(200, 0, 0) = 1e200;
  const Exact got = exact_attention(problem, longer);
  for (std::size_t n = 0; n < want.o.data.size(); ++n) EXPECT_NEAR(got.o.data[n], want.o.data[n], 1e-13);
  for (std::size_t n = 0; n < want.lse.size(); ++n) EXPECT_NEAR(got.lse[n], want.lse[n], 1e-13);
  for (std::size_t n = 0; n < want.dq.data.size(); ++n) EXPECT_NEAR(got.dq.data[n], want.dq.data[n], 1e-12);
  for (std::size_t n = 0; n < want.dk.data.size(); ++n) EXPECT_NEAR(got.dk.data[n], want.dk.data[n], 1e-12);
  for (std::size_t n = 0; n < want.dv.data.size(); ++n) EXPECT_NEAR(got.dv.data[n], want.dv.data[n], 1e-12);
}

// ---- determinism ------------------------------------------------------------------------------------------------

TEST(Exact, SameBitsForAnyNumberOfThreads) {
  Problem problem = make_problem(700, 1500, 24, 40, 3, 1);
  problem.causal = Causal::bottom_right;
  problem.d_bias = true;
  problem.bias = Bias{{false, false, false, true}, {}, 0};
  Inputs inputs = normal_inputs(problem);
  inputs.bias = {1, 1, 1, 1500, std::vector<double>(1500, 0.25)};
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const Exact want = exact_attention(problem, inputs);
  for (int threads = 2; threads <= 4; ++threads) {
    omp_set_num_threads(threads);
    const Exact got = exact_attention(problem, inputs);
    EXPECT_TRUE(same_bits(got.o.data, want.o.data));
    EXPECT_TRUE(same_bits(got.lse, want.lse));
    EXPECT_TRUE(same_bits(got.dq.data, want.dq.data));
    EXPECT_TRUE(same_bits(got.dk.data, want.dk.data));
    EXPECT_TRUE(same_bits(got.dv.data, want.dv.data));
    EXPECT_TRUE(same_bits(got.d_bias.data, want.d_bias.data));
  }
  omp_set_num_threads(before);
}

// ---- memory -------------------------------------------------------------------------------------------------------

std::int64_t output_bytes(const Problem& problem) {
  const std::int64_t q = problem.total_q() * problem.heads_q, k = problem.total_k() * problem.heads_kv;
  return 8 * (q * (1 + problem.width_v() + problem.dim) + k * (problem.dim + problem.width_v()));
}

// At most what exact.h states, and no more than twice as much for twice the keys.
/// Vectorised loops may begin with single elements up to an aligned address, which round otherwise than whole vectors.
TEST(Exact, SameBitsWhereverTheBuffersLie) {
  for (const auto& [queries, keys, dim] : {std::array{1, 2, 8}, {1, 1, 1}, {1, 2, 3}, {2, 3, 5}, {3, 5, 7}, {1, 40, 24}, {40, 1, 9}, {1, 9, 64}, {33, 17, 12}}) {
    const Problem problem = make_problem(queries, keys, dim, dim);
    const Inputs inputs = normal_inputs(problem);
    const Exact first = exact_attention(problem, inputs);
    std::vector<std::vector<double>> between;  // moves what is allocated next
    for (std::size_t n = 0; n < 24; ++n) {
      between.emplace_back(n * 7 % 13 + 1);
      const Inputs copy = inputs;
      between.emplace_back(n * 5 % 11 + 1);
      const Exact again = exact_attention(problem, copy);
      EXPECT_TRUE(same_bits(first.o.data, again.o.data)) << queries << " " << keys << " " << dim;
      EXPECT_TRUE(same_bits(first.lse, again.lse)) << queries << " " << keys << " " << dim;
      EXPECT_TRUE(same_bits(first.dq.data, again.dq.data)) << queries << " " << keys << " " << dim;
      EXPECT_TRUE(same_bits(first.dk.data, again.dk.data)) << queries << " " << keys << " " << dim;
      EXPECT_TRUE(same_bits(first.dv.data, again.dv.data)) << queries << " " << keys << " " << dim;
    }
  }
}

TEST(Exact, ExtraMemoryIsLinearInTheLength) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer keeps freed memory";
#endif
  omp_set_num_threads(2);
  std::int64_t extra[2];
  for (int doubled = 0; doubled < 2; ++doubled) {
    const Problem problem = make_problem(256, 8192 << doubled, 64, 64);
    const Inputs inputs = normal_inputs(problem);
    exact_attention(make_problem(256, 256, 64, 64), normal_inputs(make_problem(256, 256, 64, 64)));  // threads start
    extra[doubled] = peak_memory_of([&] { exact_attention(problem, inputs); }) - output_bytes(problem);
    const std::int64_t stated = 2 * 64 * 8 * problem.seq_k[0] + 15 * 1024 * 8 * (64 + 64);
    EXPECT_LT(extra[doubled], stated + (4 << 20));
  }
  EXPECT_LT(extra[1], 2 * extra[0] + (4 << 20));
  EXPECT_LT(extra[1], 64 << 20);
}

}  // namespace
}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// The slow oracle is what everything else is measured by, so it is checked by what is known from outside: published
// Philox vectors, cases worked out by hand, and the derivative of its own forward pass.
#include "tests/support/slow_oracle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/philox.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

using Words = std::array<std::uint32_t, 4>;

// Random123, tests/kat_vectors.
TEST(SlowPhilox, GivesThePublishedVectors) {
  constexpr std::uint32_t kOnes = 0xffffffff;
  const Words pi = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344};
  EXPECT_EQ(slow::philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(slow::philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(slow::philox4x32(pi, {0xa4093822, 0x299f31d0}), (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  EXPECT_EQ(slow::philox4x32({0, 0, 0, 0}, {0, 0}, 7), (Words{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}));
  EXPECT_EQ(slow::philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}, 7),
            (Words{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}));
  EXPECT_EQ(slow::philox4x32(pi, {0xa4093822, 0x299f31d0}, 7), (Words{0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}));
}

/// One head, one sequence, width D = Dv = 1 unless changed; f64 so that scale and cap are taken as they are.
Problem tiny(std::int64_t seq_q, std::int64_t seq_k, std::int64_t dim, std::int64_t dim_v) {
  Problem problem;
  problem.dtype = Dtype::f64;
  problem.seq_q = {seq_q};
  problem.seq_k = {seq_k};
  problem.dim = dim;
  problem.dim_v = dim_v;
  problem.scale = 1.0;
  problem.direction = Direction::forward;
  return problem;
}

Values one_head(std::int64_t tokens, std::int64_t width, std::vector<double> data) {
  Values values(tokens, 1, width);
  values.data = std::move(data);
  return values;
}

/// Two queries 0 over three keys, so that every score is what the bias says; V = 1, 10, 100.
Problem scores_by_bias() {
  Problem problem = tiny(2, 3, 1, 1);
  problem.bias = Bias{};
  return problem;
}
Inputs scores_by_bias_inputs(std::vector<double> scores /* [2, 3] */) {
  Inputs in;
  in.q = Values(2, 1, 1, 0.0);
  in.k = Values(3, 1, 1, 0.0);
  in.v = one_head(3, 1, {1, 10, 100});
  in.d_o = Values(2, 1, 1, 1.0);
  in.bias = {1, 1, 2, 3, std::move(scores)};
  return in;
}

Inputs seed_example() {
  Inputs in;
  in.q = one_head(5, 3, {3, -2, 1, 0.5, 4, -1, -3, 1, 2, 2, 2, -4, 1, -5, 3});
  in.k = one_head(5, 3, {2, 1, -1, -1, 3, 2, 4, -2, 0, 0, 1, 5, -3, 2, 1});
  in.v = one_head(5, 2, {1, 0, 0, 2, 3, -1, -2, 4, 5, 1});
  return in;
}

// Row 4 has scores <q,k>/sqrt(3) of -6, -10, 14, 10, -10 over sqrt(3): O and LSE follow with six exponentials.
TEST(SlowOracle, AgreesWithTheSeedExampleByHand) {
  Problem problem = tiny(5, 5, 3, 2);
  problem.scale.reset();
  const Exact got = slow::attention(problem, seed_example()).value;
  const double raw[] = {-6, -10, 14, 10, -10};
  const double v[5][2] = {{1, 0}, {0, 2}, {3, -1}, {-2, 4}, {5, 1}};
  double sum = 0, o[2] = {0, 0};
  for (int j = 0; j < 5; ++j) {
    const double weight = std::exp((raw[j] - 14) / std::sqrt(3.0));
    sum += weight;
    for (int c = 0; c < 2; ++c) o[c] += weight * v[j][c];
  }
  EXPECT_NEAR(sum, 1.099332, 5e-7);  // the issue's own figure for l
  EXPECT_NEAR(got.lse[4], 14 / std::sqrt(3.0) + std::log(sum), 1e-14);
  EXPECT_NEAR(got.o.at(4, 0, 0), o[0] / sum, 1e-14);
  EXPECT_NEAR(got.o.at(4, 0, 1), o[1] / sum, 1e-14);
}

TEST(SlowOracle, FirstCausalRowIsTheFirstValue) {
  Problem problem = tiny(5, 5, 3, 2);
  problem.causal = Causal::bottom_right;
  const Exact got = slow::attention(problem, seed_example()).value;
  EXPECT_EQ(got.o.at(0, 0, 0), 1.0);
  EXPECT_EQ(got.o.at(0, 0, 1), 0.0);
  EXPECT_EQ(got.lse[0], 3.0);  // <q0, k0> = 6 - 2 - 1 with scale 1
}

// P = 1/7, 2/7, 4/7: O = (1 + 20 + 400) / 7, LSE = log 7; with dO = 1: dV = P, delta = O,
// dBias = P (v - O) = -414/49, -702/49, 1116/49.
TEST(SlowOracle, AgreesWithAnExampleInSevenths) {
  Problem problem = scores_by_bias();
  problem.direction = Direction::both;
  problem.d_bias = true;
  const double log2 = std::log(2.0), log4 = std::log(4.0);
  const Exact got = slow::attention(problem, scores_by_bias_inputs({0, log2, log4, 0, log2, log4})).value;
  EXPECT_NEAR(got.o.at(1, 0, 0), 421.0 / 7, 1e-13);
  EXPECT_NEAR(got.lse[1], std::log(7.0), 1e-15);
  EXPECT_NEAR(got.dv.at(2, 0, 0), 8.0 / 7, 1e-15);
  EXPECT_NEAR(got.d_bias.at(0, 0, 1, 0), -414.0 / 49, 1e-13);
  EXPECT_NEAR(got.d_bias.at(0, 0, 1, 2), 1116.0 / 49, 1e-13);
  EXPECT_EQ(got.dq.at(0, 0, 0), 0.0);  // all keys are 0
}

TEST(SlowOracle, HiddenByBiasIsHiddenWhateverTheValue) {
  Problem problem = scores_by_bias();
  problem.direction = Direction::both;
  Inputs in = scores_by_bias_inputs({0, -kInfinity, 0, -kInfinity, -kInfinity, -kInfinity});
  in.v.data[1] = kNan;
  const Exact got = slow::attention(problem, in).value;
  EXPECT_EQ(got.o.at(0, 0, 0), 50.5);
  EXPECT_EQ(got.dv.at(1, 0, 0), 0.0);
  EXPECT_EQ(got.o.at(1, 0, 0), 0.0);  // sees nothing
  EXPECT_EQ(got.lse[1], -kInfinity);
  EXPECT_EQ(got.dq.at(1, 0, 0), 0.0);
}

TEST(SlowOracle, NanAndPlusInfinityStayInTheirRow) {
  for (const double poison : {kNan, kInfinity}) {
    const Exact got = slow::attention(scores_by_bias(), scores_by_bias_inputs({0, 0, 0, 0, poison, 0})).value;
    EXPECT_NEAR(got.o.at(0, 0, 0), 37.0, 1e-14);
    EXPECT_TRUE(std::isnan(got.o.at(1, 0, 0)));
    EXPECT_TRUE(std::isnan(got.lse[1]));
  }
}

TEST(SlowOracle, NanKeyReachesOnlyTheRowsThatSeeIt) {
  Problem problem = tiny(3, 3, 1, 1);
  problem.causal = Causal::top_left;
  problem.direction = Direction::both;
  Inputs in;
  in.q = Values(3, 1, 1, 1.0);
  in.k = one_head(3, 1, {0, kNan, 0});
  in.v = one_head(3, 1, {4, 5, 6});
  in.d_o = Values(3, 1, 1, 1.0);
  const Exact got = slow::attention(problem, in).value;
  EXPECT_EQ(got.o.at(0, 0, 0), 4.0);
  EXPECT_EQ(got.dq.at(0, 0, 0), 0.0);
  EXPECT_TRUE(std::isnan(got.o.at(1, 0, 0)) && std::isnan(got.o.at(2, 0, 0)));
  EXPECT_TRUE(std::isnan(got.dq.at(1, 0, 0)) && std::isnan(got.dv.at(2, 0, 0)));
}

/// Rows of visibility as text, '1' where the query of the row sees the key.
std::vector<std::string> picture(const Problem& problem) {
  std::vector<std::string> rows;
  for (std::int64_t i = 0; i < problem.seq_q[0]; ++i) {
    std::string row;
    for (std::int64_t j = 0; j < problem.seq_k[0]; ++j) row += slow::visible(problem, {}, {}, 0, 0, i, j) ? '1' : '.';
    rows.push_back(row);
  }
  return rows;
}

TEST(SlowOracle, DrawsCausalMasksAsDocumented) {
  using Picture = std::vector<std::string>;
  Problem wide = tiny(2, 5, 1, 1), tall = tiny(5, 2, 1, 1);
  wide.causal = tall.causal = Causal::top_left;
  EXPECT_EQ(picture(wide), (Picture{"1....", "11..."}));
  EXPECT_EQ(picture(tall), (Picture{"1.", "11", "11", "11", "11"}));
  wide.causal = tall.causal = Causal::bottom_right;
  EXPECT_EQ(picture(wide), (Picture{"1111.", "11111"}));
  EXPECT_EQ(picture(tall), (Picture{"..", "..", "..", "1.", "11"}));
}

TEST(SlowOracle, DrawsWindowsAsDocumented) {
  using Picture = std::vector<std::string>;
  Problem problem = tiny(3, 5, 1, 1);
  problem.window = Window{1, 0, Causal::none};
  EXPECT_EQ(picture(problem), (Picture{".11..", "..11.", "...11"}));  // bottom-right when nothing is said
  problem.window = Window{0, 1, Causal::top_left};
  EXPECT_EQ(picture(problem), (Picture{"11...", ".11..", "..11."}));
  problem.window = Window{-1, 0, Causal::none};
  problem.causal = Causal::top_left;
  EXPECT_EQ(picture(problem), (Picture{"1....", "11...", "111.."}));
  problem.window = Window{0, -1, Causal::bottom_right};
  EXPECT_EQ(picture(problem), (Picture{".....", ".....", "....."}));
}

TEST(SlowOracle, ReadsExplicitAndBlockMasks) {
  Problem problem = tiny(3, 4, 1, 1);
  problem.mask = ExplicitMask{Broadcast{false, false, false, true}, 0.5};
  problem.block = BlockMask{2, 2, -1, 0, 0.5};
  const Operand<std::uint8_t> mask{1, 1, 1, 4, {1, 0, 1, 1}};
  const Operand<std::uint8_t> block{1, 1, 2, 2, {1, 0, 0, 1}};
  const auto sees = [&](std::int64_t i, std::int64_t j) { return slow::visible(problem, mask, block, 0, 0, i, j); };
  EXPECT_TRUE(sees(0, 0) && sees(1, 0) && sees(2, 2) && sees(2, 3));
  EXPECT_FALSE(sees(0, 1) || sees(0, 2) || sees(1, 3) || sees(2, 0) || sees(2, 1));
}

// Key (0, 0), counter (0, 0, 0, 0): the words of the first published vector, as shares of 2^32 about
// 0.3990, 0.8805, 0.7357, 0.6055.
TEST(SlowOracle, KeepsByTheDocumentedWords) {
  Problem problem = tiny(1, 4, 1, 1);
  const auto kept = [&](double p) {
    problem.dropout = Dropout{p, 0, 0};
    std::string row;
    for (std::int64_t j = 0; j < 4; ++j) row += slow::kept(problem, 0, 0, 0, j) ? '1' : '.';
    return row;
  };
  EXPECT_EQ(kept(0.0), "1111");
  EXPECT_EQ(kept(0.2), "1.11");
  EXPECT_EQ(kept(0.3), "1..1");
  EXPECT_EQ(kept(0.5), "1...");
  EXPECT_EQ(kept(0.7), "....");
}

TEST(SlowOracle, DropsAfterTheSoftmaxAndKeepsTheLse) {
  Problem problem = tiny(1, 4, 1, 1);
  problem.dropout = Dropout{0.5, 0, 0};  // keeps key 0 alone
  Inputs in;
  in.q = Values(1, 1, 1, 0.0);
  in.k = Values(4, 1, 1, 0.0);
  in.v = one_head(4, 1, {8, 80, 800, 8000});
  Exact got = slow::attention(problem, in).value;
  EXPECT_EQ(got.o.at(0, 0, 0), 4.0);  // 1/4 * 8 / (1 - 0.5)
  EXPECT_EQ(got.lse[0], std::log(4.0));
  problem.dropout->p = 0.7;  // all dropped
  got = slow::attention(problem, in).value;
  EXPECT_EQ(got.o.at(0, 0, 0), 0.0);
  EXPECT_EQ(got.lse[0], std::log(4.0));
}

TEST(SlowOracle, CapsScoresBeforeTheBias) {
  Problem problem = tiny(1, 1, 1, 1);
  problem.scale = -1.5;
  problem.softcap = 2;
  problem.bias = Bias{};
  Inputs in;
  in.q = Values(1, 1, 1, 2.0);
  in.k = Values(1, 1, 1, 1.0);
  in.v = Values(1, 1, 1, 1.0);
  in.bias = {1, 1, 1, 1, {10.0}};
  const slow::Result got = slow::attention(problem, in);
  EXPECT_NEAR(got.value.lse[0], 10 + 2 * std::tanh(-3.0 / 2), 2e-15);  // one key: LSE is its score
  EXPECT_EQ(got.score_magnitude, 13.0);
}

TEST(SlowOracle, MeasuresAlibiFromTheBottomRightDiagonal) {
  const auto lse_of_only_visible_key = [](std::int64_t seq_q, std::int64_t seq_k, std::int64_t i, std::int64_t j) {
    Problem problem = tiny(seq_q, seq_k, 1, 1);
    problem.alibi = true;
    problem.mask = ExplicitMask{};
    Inputs in;
    in.q = Values(seq_q, 1, 1);
    in.k = in.v = Values(seq_k, 1, 1);
    in.alibi_slopes = {0.25};
    in.mask = {1, 1, seq_q, seq_k, std::vector<std::uint8_t>(seq_q * seq_k)};
    in.mask.data[i * seq_k + j] = 1;
    return slow::attention(problem, in).value.lse[i];
  };
  EXPECT_EQ(lse_of_only_visible_key(1, 3, 0, 0), -0.5);
  EXPECT_EQ(lse_of_only_visible_key(1, 3, 0, 2), 0.0);
  EXPECT_EQ(lse_of_only_visible_key(4, 1, 0, 0), -0.75);
  EXPECT_EQ(lse_of_only_visible_key(2, 4, 0, 3), -0.25);
}

// Two keys of weight 1/2, v = 3 and -5, dO = -2: |dP| = 6 and 10, delta 2 of magnitude 8.
TEST(SlowOracle, SumsMagnitudesWithoutCancellation) {
  Problem problem = tiny(1, 2, 1, 1);
  problem.direction = Direction::both;
  problem.scale = -0.5;
  Inputs in;
  in.q = Values(1, 1, 1, 0.0);
  in.k = one_head(2, 1, {4, -4});
  in.v = one_head(2, 1, {3, -5});
  in.d_o = Values(1, 1, 1, -2.0);
  const slow::Result got = slow::attention(problem, in);
  EXPECT_EQ(got.value.o.data[0], -1.0);
  EXPECT_EQ(got.magnitude.o.data[0], 4.0);
  EXPECT_EQ(got.value.dq.data[0], -0.5 * 0.5 * ((-6 - 2) * 4 + (10 - 2) * -4));
  EXPECT_EQ(got.magnitude.dq.data[0], 0.5 * 0.5 * ((6 + 8) * 4 + (10 + 8) * 4));
  EXPECT_EQ(got.magnitude.dk.data[1], 0.0);
  EXPECT_EQ(got.magnitude.dv.data[1], 1.0);
}

// Seven keys of weight 1/7: what 256 bits leave of 1 + 2 + 4 - 7 is no 0.
TEST(SlowOracle, RoundsCorrectlyWhatCancels) {
  const Problem problem = tiny(1, 7, 1, 1);
  Inputs in;
  in.q = Values(1, 1, 1, 0.0);
  in.k = Values(7, 1, 1, 0.0);
  in.v = one_head(7, 1, {1, 2, 4, -7, 0, 0, 0});
  const double left = slow::attention(problem, in).value.o.data[0];
  EXPECT_NE(left, 0);
  EXPECT_LT(std::abs(left), 1e-75);
  const double o = slow::correctly_rounded(problem, in).o.data[0];
  EXPECT_EQ(o, 0);
  EXPECT_FALSE(std::signbit(o));
}

// Two scores 600 apart: the smaller weight is e^-600, far below the last of 256 bits, and dS of both is +-e^-600 (v0 - v1) dO.
TEST(SlowOracle, RoundsCorrectlyWhatIsFarBelowTheLargestTerm) {
  Problem problem = tiny(1, 2, 1, 1);
  problem.direction = Direction::both;
  Inputs in;
  in.q = Values(1, 1, 1, 1.0);
  in.k = one_head(2, 1, {600, 0});
  in.v = one_head(2, 1, {3, 5});
  in.d_o = Values(1, 1, 1, 1.0);
  const double want = std::exp(-600.0) * (3 - 5) * 600;
  EXPECT_NEAR(slow::correctly_rounded(problem, in).dq.data[0] / want, 1, 1e-12);
}

TEST(BigFloat, HasMoreBitsWherePrecisionSaysSo) {
  const BigFloat third = BigFloat(1.0) / BigFloat(3.0);
  {
    const BigFloat::Precision precision(512);
    EXPECT_FALSE(BigFloat(1.0) / BigFloat(3.0) == third);
  }
  EXPECT_TRUE(BigFloat(1.0) / BigFloat(3.0) == third);
}

TEST(BigFloat, RoundsOnceToDouble) {
  const BigFloat half_ulp = BigFloat(0x1p-53);
  EXPECT_EQ((BigFloat(1.0) + half_ulp).to_double(), 1.0);  // ties to even
  EXPECT_EQ((BigFloat(1.0) + half_ulp + BigFloat(0x1p-200)).to_double(), 1.0 + 0x1p-52);
  EXPECT_EQ((BigFloat(0x1p-1022) * BigFloat(0x1.8p-52)).to_double(), 0x1p-1073);  // subnormal: 1.5 units, a tie
  EXPECT_EQ((BigFloat(1e300) * BigFloat(1e300)).to_double(), kInfinity);
  EXPECT_EQ((BigFloat(1e300) * BigFloat(1e300) / BigFloat(1e300)).to_double(), 1e300);
}

TEST(SlowOracle, GroupsQueryHeadsByNeighbours) {
  Problem problem = tiny(1, 1, 1, 1);
  problem.heads_q = 6;
  problem.heads_kv = 2;
  problem.direction = Direction::both;
  Inputs in;
  in.q = Values(1, 6, 1, 1.0);
  in.k = Values(1, 2, 1, 1.0);
  in.v = Values(1, 2, 1);
  in.v.data = {10, 20};
  in.d_o = Values(1, 6, 1);
  in.d_o.data = {1, 2, 4, 8, 16, 32};
  const Exact got = slow::attention(problem, in).value;
  EXPECT_EQ(got.o.data, (std::vector<double>{10, 10, 10, 20, 20, 20}));
  EXPECT_EQ(got.dv.data, (std::vector<double>{7, 56}));
}

}  // namespace
}  // namespace attest

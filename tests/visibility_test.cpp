// SPDX-License-Identifier: Apache-2.0
// The oracle's mask predicate on small masks drawn by hand, and Philox against the published test vectors.
#include "reference/oracle/visibility.h"

#include <gtest/gtest.h>

#include <string>

namespace attest {
namespace {

std::string drawn(const Problem& problem, const Inputs& inputs = {}, std::int64_t b = 0) {
  std::string rows;
  for (std::int64_t i = 0; i < problem.seq_q[b]; ++i) {
    for (std::int64_t j = 0; j < problem.seq_k[b]; ++j) rows += visible(problem, inputs, b, 0, i, j) ? '#' : '.';
    rows += ' ';
  }
  return rows;
}

Problem make_problem(std::int64_t seq_q, std::int64_t seq_k) {
  Problem problem;
  problem.seq_q = {seq_q};
  problem.seq_k = {seq_k};
  return problem;
}

TEST(Visibility, CausalAlignsTopLeftOrBottomRight) {
  Problem problem = make_problem(2, 4);
  problem.causal = Causal::top_left;
  EXPECT_EQ(drawn(problem), "#... ##.. ");
  problem.causal = Causal::bottom_right;
  EXPECT_EQ(drawn(problem), "###. #### ");
  problem = make_problem(4, 2);
  problem.causal = Causal::bottom_right;
  EXPECT_EQ(drawn(problem), ".. .. #. ## ");
}

TEST(Visibility, WindowCountsBothSidesInclusive) {
  Problem problem = make_problem(3, 5);
  problem.window = Window{1, 0, Causal::none};  // bottom-right by default: row 0 is centred on key 2
  EXPECT_EQ(drawn(problem), ".##.. ..##. ...## ");
  problem.window = Window{0, 1, Causal::top_left};
  EXPECT_EQ(drawn(problem), "##... .##.. ..##. ");
  problem.window = Window{-1, 0, Causal::none};
  EXPECT_EQ(drawn(problem), "###.. ####. ##### ");
  problem.window = Window{1, -1, Causal::none};
  problem.causal = Causal::top_left;
  EXPECT_EQ(drawn(problem), "#.... ##... .##.. ");
}

TEST(Visibility, EnormousWindowsDoNotOverflow) {
  Problem problem = make_problem(1, 2);
  problem.window = Window{INT64_MAX, INT64_MAX, Causal::none};
  EXPECT_EQ(drawn(problem), "## ");
}

TEST(Visibility, ExplicitAndBlockMasksIntersectWithCausal) {
  Problem problem = make_problem(4, 4);
  problem.causal = Causal::top_left;
  problem.mask = ExplicitMask{};
  problem.block = BlockMask{2, 2, 0, 0, 0};
  Inputs inputs;
  inputs.mask = {1, 1, 1, 4, {1, 1, 0, 1}};
  inputs.block_mask = {1, 1, 2, 2, {1, 0, 0, 1}};
  EXPECT_EQ(drawn(problem, inputs), "#... ##.. .... ...# ");
}

TEST(Visibility, EachSequenceHasItsOwnLengths) {
  Problem problem = make_problem(2, 2);
  problem.seq_q = {2, 1};
  problem.seq_k = {2, 3};
  problem.causal = Causal::bottom_right;
  EXPECT_EQ(drawn(problem, {}, 0), "#. ## ");
  EXPECT_EQ(drawn(problem, {}, 1), "### ");
}

TEST(Philox, MatchesThePublishedVectors) {
  // Random123's known-answer file, philox4x32 with 10 rounds.
  const PhiloxBlock zero = philox4x32_10({{0, 0, 0, 0}}, 0);
  EXPECT_EQ(zero.word[0], 0x6627e8d5u);
  EXPECT_EQ(zero.word[1], 0xe169c58du);
  EXPECT_EQ(zero.word[2], 0xbc57ac4cu);
  EXPECT_EQ(zero.word[3], 0x9b00dbd8u);
  const std::uint32_t ones = 0xffffffff;
  const PhiloxBlock full = philox4x32_10({{ones, ones, ones, ones}}, ~std::uint64_t{0});
  EXPECT_EQ(full.word[0], 0x408f276du);
  EXPECT_EQ(full.word[1], 0x41c83b0eu);
  EXPECT_EQ(full.word[2], 0xa20bc7c6u);
  EXPECT_EQ(full.word[3], 0x6d5451fdu);
  const PhiloxBlock pi = philox4x32_10({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0x299f31d0a4093822);
  EXPECT_EQ(pi.word[0], 0xd16cfe09u);
  EXPECT_EQ(pi.word[1], 0x94fdccebu);
  EXPECT_EQ(pi.word[2], 0x5001e420u);
  EXPECT_EQ(pi.word[3], 0x24126ea1u);
}

TEST(Dropout, RowsAgreeWithSingleDecisionsAndKeepTheirShare) {
  Problem problem = make_problem(64, 301);
  problem.heads_q = problem.heads_kv = 2;
  problem.dropout = Dropout{0.2, 42, 3};
  double total = 0;
  for (std::int64_t i = 0; i < 64; ++i) {
    std::vector<double> row(298);
    kept_row(problem, 0, 1, i, 3, row);
    for (std::size_t n = 0; n < row.size(); ++n) {
      ASSERT_EQ(row[n] == 1, kept(problem, 0, 1, i, 3 + static_cast<std::int64_t>(n)));
      total += row[n];
    }
  }
  EXPECT_NEAR(total / (64 * 298), 0.8, 0.012);  // four standard deviations
}

TEST(Dropout, ZeroProbabilityKeepsEverything) {
  Problem problem = make_problem(4, 64);
  problem.dropout = Dropout{0, 1, 0};
  for (std::int64_t i = 0; i < 4; ++i) {
    for (std::int64_t j = 0; j < 64; ++j) EXPECT_TRUE(kept(problem, 0, 0, i, j));
  }
}

}  // namespace
}  // namespace attest

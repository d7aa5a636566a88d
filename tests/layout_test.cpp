// SPDX-License-Identifier: Apache-2.0
// Extents, strides and offsets of every layout, with padding on both sides, packing with slack and stated strides.
#include "reference/problem/layout.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace attest {
namespace {

Problem ragged(Layout layout) {
  Problem problem;
  problem.layout = layout;
  problem.seq_q = {3, 0, 2};
  problem.seq_k = {5, 2, 4};
  problem.heads_q = 6;
  problem.heads_kv = 2;
  problem.dim = 8;
  problem.dim_v = 4;
  return problem;
}

void expect_extents(const Problem& problem, TensorId id, Extents want) {
  const Extents got = extents_of(problem, id);
  EXPECT_EQ(got.batch, want.batch) << name_of(id);
  EXPECT_EQ(got.rows, want.rows) << name_of(id);
  EXPECT_EQ(got.heads, want.heads) << name_of(id);
  EXPECT_EQ(got.width, want.width) << name_of(id);
}

TEST(Layout, ExtentsFollowTheSideOfTheTensor) {
  for (const Layout layout : {Layout::bshd, Layout::bhsd}) {
    const Problem problem = ragged(layout);
    for (const TensorId id : {TensorId::q, TensorId::dq}) expect_extents(problem, id, {3, 3, 6, 8});
    for (const TensorId id : {TensorId::o, TensorId::d_o}) expect_extents(problem, id, {3, 3, 6, 4});
    for (const TensorId id : {TensorId::k, TensorId::dk}) expect_extents(problem, id, {3, 5, 2, 8});
    for (const TensorId id : {TensorId::v, TensorId::dv}) expect_extents(problem, id, {3, 5, 2, 4});
  }
  const Problem packed = ragged(Layout::thd);
  expect_extents(packed, TensorId::q, {1, 5, 6, 8});
  expect_extents(packed, TensorId::dv, {1, 11, 2, 4});
}

TEST(Layout, OutputsAndQuerySide) {
  std::set<std::string_view> outputs, query_side;
  for (const TensorId id : kTensorIds) {
    if (is_output(id)) outputs.insert(name_of(id));
    if (is_query_side(id)) query_side.insert(name_of(id));
  }
  EXPECT_EQ(outputs, (std::set<std::string_view>{"o", "dq", "dk", "dv"}));
  EXPECT_EQ(query_side, (std::set<std::string_view>{"q", "o", "do", "dq"}));
}

TEST(Layout, ContiguousStrides) {
  EXPECT_EQ(strides_of(ragged(Layout::bshd), TensorId::q), (Strides{144, 48, 8}));
  EXPECT_EQ(strides_of(ragged(Layout::bhsd), TensorId::q), (Strides{144, 8, 24}));
  EXPECT_EQ(strides_of(ragged(Layout::thd), TensorId::q), (Strides{0, 48, 8}));
  EXPECT_EQ(strides_of(ragged(Layout::bhsd), TensorId::v), (Strides{40, 4, 20}));
}

TEST(Layout, OffsetsOfPaddedTokensFollowTheSide) {
  Problem problem = ragged(Layout::bshd);
  problem.extent_q = 7;
  EXPECT_EQ(offset_of(problem, TensorId::q, 2, 1, 5), 2 * 7 * 48 + 1 * 48 + 5 * 8);
  problem.pad = PadSide::left;
  EXPECT_EQ(row_of_token(problem, TensorId::q, 0, 0), 4);
  EXPECT_EQ(row_of_token(problem, TensorId::q, 2, 1), 6);
  EXPECT_EQ(row_of_token(problem, TensorId::k, 1, 0), 3) << "keys end at the key side's own extent";
  EXPECT_EQ(offset_of(problem, TensorId::q, 2, 1, 5), 2 * 7 * 48 + 6 * 48 + 5 * 8);
  problem.layout = Layout::bhsd;
  EXPECT_EQ(offset_of(problem, TensorId::q, 2, 1, 5), 2 * 7 * 48 + 6 * 8 + 5 * 56);
}

TEST(Layout, PackedTokensLieEndToEndAndIgnoreSideAndSlack) {
  Problem problem = ragged(Layout::thd);
  EXPECT_EQ(storage_elements(problem, TensorId::q), 5 * 48);
  problem.extent_q = 9;
  problem.pad = PadSide::left;
  EXPECT_EQ(storage_elements(problem, TensorId::q), 9 * 48);
  EXPECT_EQ(row_of_token(problem, TensorId::q, 2, 1), 4);
  EXPECT_EQ(row_of_token(problem, TensorId::k, 2, 3), 10);
  EXPECT_EQ(offset_of(problem, TensorId::k, 1, 1, 1), 6 * 16 + 8);
}

TEST(Layout, StatedStridesReplaceTheContiguousOnesOfThatTensorAlone) {
  Problem problem = ragged(Layout::bshd);
  problem.strides[static_cast<std::size_t>(TensorId::k)] = Strides{1000, 100, 20};
  EXPECT_EQ(offset_of(problem, TensorId::k, 2, 3, 1), 2320);
  EXPECT_EQ(storage_elements(problem, TensorId::k), 2 * 1000 + 4 * 100 + 1 * 20 + 8);
  EXPECT_EQ(strides_of(problem, TensorId::v), (Strides{40, 8, 4}));
  problem.strides[static_cast<std::size_t>(TensorId::k)] = Strides{0, 8, 0};  // expanded over batch and heads
  EXPECT_EQ(storage_elements(problem, TensorId::k), 4 * 8 + 8);
  EXPECT_EQ(offset_of(problem, TensorId::k, 2, 3, 1), 24);
}

TEST(Layout, EmptyTensorsHaveNoStorage) {
  Problem problem = ragged(Layout::bshd);
  problem.seq_q = {0, 0, 0};
  EXPECT_EQ(storage_elements(problem, TensorId::q), 0);
  EXPECT_EQ(storage_elements(problem, TensorId::k), 3 * 5 * 16);
}

/// Contiguous layouts with full lengths address every element once.
TEST(Layout, ContiguousTensorsAreCoveredExactly) {
  for (const Layout layout : {Layout::bshd, Layout::bhsd, Layout::thd}) {
    Problem problem = ragged(layout);
    problem.seq_q = {3, 3};
    problem.seq_k = {5, 5};
    for (const TensorId id : kTensorIds) {
      const Extents extents = extents_of(problem, id);
      const auto& lengths = is_query_side(id) ? problem.seq_q : problem.seq_k;
      std::set<std::int64_t> seen;
      for (std::int64_t b = 0; b < problem.batch(); ++b) {
        for (std::int64_t i = 0; i < lengths[static_cast<std::size_t>(b)]; ++i) {
          for (std::int64_t h = 0; h < extents.heads; ++h) {
            for (std::int64_t c = 0; c < extents.width; ++c) seen.insert(offset_of(problem, id, b, i, h) + c);
          }
        }
      }
      EXPECT_EQ(static_cast<std::int64_t>(seen.size()), storage_elements(problem, id)) << name_of(id);
      EXPECT_EQ(*seen.begin(), 0);
      EXPECT_EQ(*seen.rbegin(), storage_elements(problem, id) - 1);
    }
  }
}

Problem paged(Layout layout) {
  Problem problem = ragged(layout);
  problem.direction = Direction::forward;
  problem.page_size = 2;
  return problem;
}

TEST(Pages, PoolHoldsThePagesOfEverySequenceAndSomeMore) {
  const Problem problem = paged(Layout::bshd);  // 5, 2 and 4 keys: 3 + 1 + 2 pages of 2
  EXPECT_EQ(pages_in_pool(problem), 8);
  EXPECT_EQ(pages_in_row(problem), 3);
  for (const Layout layout : {Layout::bshd, Layout::bhsd, Layout::thd}) {
    expect_extents(paged(layout), TensorId::k, {8, 2, 2, 8});
    expect_extents(paged(layout), TensorId::v, {8, 2, 2, 4});
  }
  EXPECT_EQ(strides_of(paged(Layout::bshd), TensorId::k), (Strides{32, 16, 8}));
  EXPECT_EQ(strides_of(paged(Layout::bhsd), TensorId::k), (Strides{32, 8, 16}));
  EXPECT_EQ(strides_of(paged(Layout::thd), TensorId::k), (Strides{32, 16, 8}));
  EXPECT_FALSE(is_paged(problem, TensorId::q));
}

TEST(Pages, NoPageHasTwoOwnersAndTokensFollowTheTable) {
  const Problem problem = paged(Layout::bhsd);
  const std::vector<std::int64_t> table = page_table(problem);
  ASSERT_EQ(table.size(), 9u);
  std::set<std::int64_t> used;
  for (std::int64_t b = 0; b < 3; ++b) {
    const std::int64_t length = problem.seq_k[static_cast<std::size_t>(b)];
    for (std::int64_t j = 0; j < length; ++j) {
      const std::int64_t page = table[static_cast<std::size_t>(b * 3 + j / 2)];
      EXPECT_GE(page, 0);
      EXPECT_LT(page, 8);
      used.insert(page);
      EXPECT_EQ(offset_of(problem, TensorId::k, b, j, 1), page * 32 + j % 2 * 8 + 16);
    }
  }
  EXPECT_EQ(used.size(), 6u);
  // Past the last page of a sequence stands a page of the pool that holds no token.
  for (const std::int64_t unused : {table[4], table[5], table[8]}) {
    EXPECT_EQ(used.count(unused), 0u);
    EXPECT_LT(unused, 8);
  }
}

}  // namespace
}  // namespace attest

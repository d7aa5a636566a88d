// SPDX-License-Identifier: Apache-2.0
// Covering arrays, the cases made of them, and what the generator leans to: counted here by other means than the ones that
// made them.
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "reference/problem/case_text.h"
#include "reference/problem/inputs.h"
#include "reference/problem/layout.h"
#include "reference/verify/cases/covering_array.h"
#include "reference/verify/cases/covering_cases.h"
#include "reference/verify/cases/features.h"

namespace attest {
namespace {

std::vector<FactorValues> rows_of(CoveringArray& array) {
  std::vector<FactorValues> rows;
  while (const auto row = array.propose()) {
    array.accept(*row);
    rows.push_back(*row);
  }
  return rows;
}

RC_GTEST_PROP(CoveringArrayProperty, EveryPairIsInSomeRow, ()) {
  const auto factors = *rc::gen::inRange<std::size_t>(2, 8);
  const auto counts = *rc::gen::container<std::vector<int>>(factors, rc::gen::inRange(1, 6));
  CoveringArray array(counts, {}, 2, *rc::gen::arbitrary<std::uint64_t>());
  const std::vector<FactorValues> rows = rows_of(array);
  std::int64_t pairs = 0;
  for (std::size_t a = 0; a < factors; ++a) {
    for (std::size_t b = a + 1; b < factors; ++b) {
      for (int x = 0; x < counts[a]; ++x) {
        for (int y = 0; y < counts[b]; ++y, ++pairs) {
          RC_ASSERT(std::ranges::any_of(rows, [&](const FactorValues& row) { return row[a] == x && row[b] == y; }));
        }
      }
    }
  }
  RC_ASSERT(array.combinations() == pairs);
  RC_ASSERT(array.covered() == pairs);
  RC_ASSERT(array.unreached().empty());
}

TEST(CoveringArray, EveryTripleIsInSomeRowAndRowsAreFew) {
  CoveringArray array({3, 3, 3, 3, 3}, {}, 3, 1);
  const std::vector<FactorValues> rows = rows_of(array);
  std::set<std::vector<int>> triples;
  for (const FactorValues& row : rows) {
    for (int a = 0; a < 5; ++a) {
      for (int b = a + 1; b < 5; ++b) {
        for (int c = b + 1; c < 5; ++c) triples.insert({a, b, c, row[a], row[b], row[c]});
      }
    }
  }
  EXPECT_EQ(triples.size(), 270u);  // 10 choices of 3 of 5, times 27
  EXPECT_LT(rows.size(), 60u);      // at least 27
}

TEST(CoveringArray, ObeysRulesAndWhatFollowsFromThem) {
  // a=1 excludes b=0, and b=1 excludes c=0: so a=1 and c=0 exclude each other too.
  const std::vector<Forbidden> rules = {{{{0, 0b10}, {1, 0b01}}, "first"}, {{{1, 0b10}, {2, 0b01}}, "second"}};
  CoveringArray array({2, 2, 2}, rules, 2, 3);
  for (const FactorValues& row : rows_of(array)) {
    EXPECT_FALSE(row[0] == 1 && row[1] == 0);
    EXPECT_FALSE(row[1] == 1 && row[2] == 0);
  }
  const std::vector<Unreached> unreached = array.unreached();
  ASSERT_EQ(unreached.size(), 3u);
  EXPECT_EQ(unreached[0].combination, (Combination{{0, 1}, {1, 0}}));
  EXPECT_EQ(unreached[1].combination, (Combination{{0, 2}, {1, 0}}));
  EXPECT_EQ(unreached[2].combination, (Combination{{1, 2}, {1, 0}}));
  for (const Unreached& one : unreached) EXPECT_TRUE(one.excluded);
  EXPECT_EQ(array.covered(), 9);
}

TEST(CoveringArray, GivesUpWhatIsRefusedAndCoversTheRest) {
  CoveringArray array({2, 3, 2}, {}, 2, 5);
  while (const auto row = array.propose()) {
    if ((*row)[1] == 2) {
      array.reject("no twos");
    } else {
      array.accept(*row);
    }
  }
  EXPECT_EQ(array.covered(), 4 + 4 + 4);
  const std::vector<Unreached> unreached = array.unreached();
  ASSERT_EQ(unreached.size(), 4u);  // 2 with a, 2 with c
  for (const Unreached& one : unreached) {
    EXPECT_EQ(one.reason, "no twos");
    EXPECT_FALSE(one.excluded);
  }
}

TEST(CoveringArray, AcceptsOnlyWhatItIsBuiltFor) {
  EXPECT_THROW(CoveringArray({2, 2}, {}, 0, 1), std::invalid_argument);
  EXPECT_THROW(CoveringArray({2, 2}, {}, 3, 1), std::invalid_argument);
  EXPECT_THROW(CoveringArray({2, 65}, {}, 2, 1), std::invalid_argument);
}

/// The features of a case as this file understands them: name and value.
std::vector<std::pair<std::string, std::string>> read_features(const Problem& p) {
  const auto text = [](bool on, const char* yes, const char* no) { return std::string(on ? yes : no); };
  const auto around = [](std::int64_t n) -> std::string {
    static const std::map<std::int64_t, std::string> known = {
        {15, "tile-1"}, {31, "tile-1"}, {63, "tile-1"}, {127, "tile-1"}, {255, "tile-1"}, {16, "tile"}, {32, "tile"}, {64, "tile"},
        {128, "tile"}, {256, "tile"}, {17, "tile+1"}, {33, "tile+1"}, {65, "tile+1"}, {129, "tile+1"}, {257, "tile+1"},
        {24, "tile*1.5"}, {48, "tile*1.5"}, {96, "tile*1.5"}, {192, "tile*1.5"}, {384, "tile*1.5"}};
    return known.contains(n) ? known.at(n) : "other";
  };
  const auto length = [&](std::int64_t n) { return n == 0 ? "0" : n == 1 ? "1" : around(n); };
  std::int64_t pad = 0;
  bool empty = false, unequal = false;
  for (std::size_t b = 0; b < p.seq_q.size(); ++b) {
    empty |= p.seq_q[b] * p.seq_k[b] == 0;
    unequal |= p.seq_q[b] != p.seq_q[0] || p.seq_k[b] != p.seq_k[0];
    if (p.layout == Layout::thd) continue;
    pad = std::max(pad, p.rows_q() - p.seq_q[b]);
    if (p.page_size == 0) pad = std::max(pad, p.rows_k() - p.seq_k[b]);
  }
  if (p.layout == Layout::thd) {
    pad = p.rows_q() - p.total_q();
    if (p.page_size == 0) pad = std::max(pad, p.rows_k() - p.total_k());
  }
  std::string strides = "own";
  for (const TensorId id : kTensorIds) {
    const auto& s = p.strides[static_cast<std::size_t>(id)];
    if (!s) continue;
    const Extents e = extents_of(p, id);
    const bool still = (e.heads > 1 && s->head == 0) || (e.rows > 1 && s->seq == 0) || (p.layout != Layout::thd && e.batch > 1 && s->batch == 0);
    strides = still ? "expanded" : strides == "own" ? "other" : strides;
  }
  std::string window = "off";
  if (p.window) {
    const std::int64_t side = p.window->left < 0 ? p.window->right : p.window->left;
    window = side < 0 ? "open" : side < 8 ? "narrow" : around(side);
  }
  std::string scale = "default";
  if (p.scale) scale = *p.scale == 0 ? "0" : *p.scale < 0 ? "negative" : *p.scale < 1e-3 ? "tiny" : *p.scale >= 4 ? "large" : "other";
  std::string bias = "off";
  if (p.bias) bias = p.bias->hide > 0 ? "hiding" : p.bias->dtype && (p.dtype == Dtype::f16 || p.dtype == Dtype::bf16) ? "other-type" : "plain";
  return {{"dtype", std::string(name_of(p.dtype))},
          {"out", text(p.out_dtype.has_value(), "other", "default")},
          {"layout", p.layout == Layout::bshd ? "bshd" : p.layout == Layout::bhsd ? "bhsd" : "thd"},
          {"padding", pad == 0 ? "none" : text(p.pad == PadSide::left, "left", "right") + text(pad > 64, "-long", "")},
          {"batch", p.batch() == 1 ? "one" : empty ? "empty-member" : text(unequal, "unequal", "equal")},
          {"q-length", length(p.max_q())},
          {"k-length", length(p.max_k())},
          {"lengths", p.max_q() < p.max_k() ? "q<k" : text(p.max_q() > p.max_k(), "q>k", "q=k")},
          {"group", std::to_string(p.heads_q / p.heads_kv)},
          {"kv-heads", text(p.heads_kv > 1, "more", "1")},
          {"width", p.dim % 8 != 0 ? "odd" : p.dim == 64 ? "64" : p.dim == 128 ? "128" : text(p.dim > 128, "wide", "multiple-of-8")},
          {"v-width", p.width_v() == p.dim ? "same" : text(p.width_v() > p.dim, "wider", "narrower")},
          {"scale", scale},
          {"softcap", p.softcap == 0 ? "off" : text(p.softcap > 1, "loose", "tight")},
          {"bias", bias},
          {"alibi", text(p.alibi, "on", "off")},
          {"causal", p.causal == Causal::none ? "off" : text(p.causal == Causal::top_left, "top-left", "bottom-right")},
          {"window", window},
          {"mask", !p.mask ? "off" : text(p.mask->density < 1, "partial", "full")},
          {"block", !p.block ? "off" : text(p.block->random == 0, "band", "random")},
          {"dropout", !p.dropout ? "off" : p.dropout->p == 0 ? "0" : text(p.dropout->p < 0.5, "low", "high")},
          {"direction", p.direction == Direction::both ? "both" : text(p.wants_forward(), "forward", "backward")},
          {"dlse", text(p.d_lse, "on", "off")},
          {"dbias", text(p.d_bias, "on", "off")},
          {"pages", p.page_size < 2 ? text(p.page_size == 1, "1", "off") : text(p.page_size < 64, "short", "long")},
          {"strides", strides},
          {"family", p.fill.family}};
}

std::set<std::string> pairs_of(const std::vector<Problem>& cases) {
  std::set<std::string> pairs;
  for (const Problem& problem : cases) {
    const auto values = read_features(problem);
    for (std::size_t a = 0; a < values.size(); ++a) {
      for (std::size_t b = a + 1; b < values.size(); ++b) {
        pairs.insert(values[a].first + "=" + values[a].second + ", " + values[b].first + "=" + values[b].second);
      }
    }
  }
  return pairs;
}

/// Pairs that no case can have: what the contract leaves out, and families that say nothing in a type.
std::set<std::string> impossible_pairs() {
  std::set<std::string> pairs = {
      "dtype=f64, out=other", "dtype=f64, bias=other-type", "dtype=f32, bias=other-type", "dtype=f8e4m3, bias=other-type",
      "dtype=f8e5m2, bias=other-type", "dtype=f64, family=edge", "dtype=f32, family=subnormal", "dtype=bf16, family=subnormal",
      "layout=thd, padding=left", "layout=thd, padding=left-long", "batch=equal, q-length=0", "batch=unequal, q-length=0",
      "batch=equal, k-length=0", "batch=unequal, k-length=0", "q-length=0, lengths=q>k", "k-length=0, lengths=q<k",
      "bias=off, dbias=on", "dropout=low, family=edge", "dropout=high, family=edge", "direction=forward, dlse=on",
      "direction=forward, dbias=on"};
  for (const char* narrow : {"f8e4m3", "f8e5m2"}) {
    for (const char* family : {"needle", "peaked", "rising", "falling", "level", "edge", "subnormal", "cancel"}) {
      pairs.insert(std::string("dtype=") + narrow + ", family=" + family);
    }
  }
  for (const char* pages : {"1", "short", "long"}) {
    for (const char* other : {"direction=backward", "direction=both", "dlse=on", "dbias=on"}) pairs.insert(std::string(other) + ", pages=" + pages);
  }
  return pairs;
}

TEST(CoveringCases, HaveEveryPairOfFeatureValues) {
  for (const std::uint64_t seed : {1, 2}) {
    const CoveringCases covering = covering_cases({}, 2, seed);
    const std::set<std::string> pairs = pairs_of(covering.cases);
    const std::set<std::string> impossible = impossible_pairs();
    std::int64_t missing = 0;
    for (std::size_t a = 0; a < features().size(); ++a) {
      for (std::size_t b = a + 1; b < features().size(); ++b) {
        for (const std::string& x : features()[a].values) {
          for (const std::string& y : features()[b].values) {
            const std::string pair = features()[a].name + "=" + x + ", " + features()[b].name + "=" + y;
            EXPECT_EQ(pairs.contains(pair), !impossible.contains(pair)) << pair;
            missing += !pairs.contains(pair);
          }
        }
      }
    }
    EXPECT_EQ(missing, static_cast<std::int64_t>(impossible.size()));
    EXPECT_EQ(covering.covered, covering.combinations - missing);
    EXPECT_EQ(covering.unreached.size(), impossible.size());
    EXPECT_LT(covering.cases.size(), 150u);
  }
}

TEST(CoveringCases, AreTheSameForTheSameSeedAndOthersForAnother) {
  const auto texts = [](std::uint64_t seed) {
    std::vector<std::string> all;
    for (const Problem& problem : covering_cases({}, 2, seed).cases) all.push_back(print_case(problem));
    return all;
  };
  EXPECT_EQ(texts(4), texts(4));
  EXPECT_NE(texts(4), texts(5));
}

TEST(CoveringCases, LeaveOutWhatAKernelDeclinesAndSayWhy) {
  const CoveringCases covering = covering_cases({}, 2, 1, [](const Problem& p) { return p.alibi ? "has no ALiBi" : ""; });
  std::int64_t declined = 0;
  for (const Unreached& unreached : covering.unreached) {
    if (unreached.excluded) continue;
    EXPECT_EQ(unreached.reason, "declined: has no ALiBi");
    EXPECT_NE(describe(unreached.combination).find("alibi=on"), std::string::npos);
    ++declined;
  }
  std::int64_t others = 0;  // values of the other features
  for (const Feature& feature : features()) others += feature.name == "alibi" ? 0 : static_cast<std::int64_t>(feature.values.size());
  EXPECT_EQ(declined, others);
  for (const Problem& problem : covering.cases) EXPECT_FALSE(problem.alibi);
}

TEST(CoveringCases, KeepToTheDirectionAndTheWork) {
  CaseSpace space;
  space.direction = Direction::forward;
  space.most_work = 2e6;
  const CoveringCases covering = covering_cases(space, 2, 1);
  for (const Problem& problem : covering.cases) {
    EXPECT_EQ(problem.direction, Direction::forward);
    EXPECT_LE(forward_work(problem), 2e6);
  }
  for (const Unreached& unreached : covering.unreached) EXPECT_TRUE(unreached.excluded) << describe(unreached.combination) << ": " << unreached.reason;
}

// What the generator leans to, each in at least one in 200 of its cases; around a tile of 48 and 112 that a kernel declares.
TEST(RandomCases, LeanToWhereKernelsBreak) {
  CaseSpace space;
  space.tiles.insert(space.tiles.end(), {48, 112});
  space.key_tile = 48;
  constexpr std::int64_t kCases = 2000;
  std::map<std::string, std::int64_t> seen;
  for (std::uint64_t n = 0; n < kCases; ++n) {
    const Problem p = random_case(space, 1, n);
    const auto any = [&](std::initializer_list<std::int64_t> lengths) {
      return std::ranges::any_of(lengths, [&](std::int64_t l) { return std::ranges::find(p.seq_k, l) != p.seq_k.end() || std::ranges::find(p.seq_q, l) != p.seq_q.end(); });
    };
    seen["length 0"] += any({0});
    seen["length 1"] += any({1});
    seen["declared tiles"] += any({48, 112});
    seen["declared tiles - 1"] += any({47, 111});
    seen["declared tiles + 1"] += any({49, 113});
    seen["declared tiles and a half"] += any({72, 168});
    for (const std::int64_t tile : {16, 32, 64, 128, 256}) {
      seen["tile " + std::to_string(tile)] += any({tile - 1, tile, tile + 1});
      seen["tile and a half " + std::to_string(tile)] += any({tile + tile / 2});
    }
    seen["q < k"] += p.max_q() < p.max_k();
    seen["q = k"] += p.max_q() == p.max_k();
    seen["q > k"] += p.max_q() > p.max_k();
    seen["group " + std::to_string(p.group())] += 1;
    const bool packed = p.layout == Layout::thd && p.batch() > 1;
    seen["packed, an empty member"] += packed && any({0});
    seen["packed, unequal members"] += packed && std::ranges::adjacent_find(p.seq_k, std::not_equal_to()) != p.seq_k.end();
    const bool long_padding = p.layout != Layout::thd && (p.rows_q() - p.max_q() > 48 || (p.page_size == 0 && p.rows_k() - p.max_k() > 48));
    seen[std::string("padding over a tile ") + (p.pad == PadSide::left ? "left" : "right")] += long_padding;
    if (p.window) {
      for (const std::int64_t side : {p.window->left, p.window->right}) {
        for (const std::int64_t off : {-1, 0, 1}) seen["window of a tile " + std::to_string(off)] += side == 48 + off || side == 64 + off;
      }
    }
    if (p.scale) seen[*p.scale == 0 ? "scale 0" : *p.scale < 0 ? "negative scale" : *p.scale < 1e-3 ? "tiny scale" : *p.scale >= 4 ? "large scale" : "scale"] += 1;
    seen["family " + p.fill.family] += 1;
  }
  for (const char* what : {"length 0", "length 1", "declared tiles", "declared tiles - 1", "declared tiles + 1", "declared tiles and a half", "tile 16",
                           "tile 32", "tile 64", "tile 128", "tile 256", "tile and a half 16", "tile and a half 32", "tile and a half 64", "tile and a half 128",
                           "tile and a half 256", "q < k", "q = k", "q > k", "group 1", "group 2", "group 3", "group 4", "group 8", "packed, an empty member",
                           "packed, unequal members", "padding over a tile left", "padding over a tile right", "window of a tile -1", "window of a tile 0",
                           "window of a tile 1", "scale 0", "negative scale", "tiny scale", "large scale"}) {
    EXPECT_GE(seen[what], kCases / 200) << what;
  }
  for (const Family& f : families()) {
    if (f.kind == FamilyKind::captured) continue;
    EXPECT_GE(seen["family " + std::string(f.name)], 4) << f.name;
  }
}

}  // namespace
}  // namespace attest

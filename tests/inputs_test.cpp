// SPDX-License-Identifier: Apache-2.0
// Inputs as a whole: frozen bytes, independence of the layout and of each other, shared storage (stride 0), and the
// operands: masks, block masks, bias, slopes and the gradient of LSE. The families have a test of their own.
#include "reference/problem/inputs.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "reference/problem/invalid_request.h"
#include "reference/problem/layout.h"

namespace attest {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Problem ragged() {
  Problem problem;
  problem.seq_q = {5, 0, 9};
  problem.seq_k = {7, 3, 12};
  problem.heads_q = 4;
  problem.heads_kv = 2;
  problem.dim = 8;
  problem.dim_v = 6;
  problem.fill.seed = 3;
  return problem;
}

const Values& tensor(const Inputs& inputs, TensorId id) {
  switch (id) {
    case TensorId::q:
      return inputs.q;
    case TensorId::k:
      return inputs.k;
    case TensorId::v:
      return inputs.v;
    default:
      return inputs.d_o;
  }
}

constexpr TensorId kInputs[] = {TensorId::q, TensorId::k, TensorId::v, TensorId::d_o};

void expect_equal_tensors(const Inputs& want, const Inputs& got) {
  for (const TensorId id : kInputs) EXPECT_EQ(tensor(want, id).data, tensor(got, id).data) << name_of(id);
}

std::uint64_t digest(const Inputs& inputs) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a over the bits of all elements
  for (const TensorId id : kInputs) {
    for (const double value : tensor(inputs, id).data)
      hash = (hash ^ std::bit_cast<std::uint64_t>(value)) * 0x100000001b3;
  }
  return hash;
}

/// A change here changes every recorded case of the family: it must be meant.
TEST(Inputs, ElementsAreFrozen) {
  const Inputs inputs = make_inputs(ragged());
  EXPECT_EQ(inputs.q.at(0, 0, 0), 0x1.122664p-1);
  EXPECT_EQ(inputs.k.at(9, 1, 7), 0x1.dc1944p-2);
  EXPECT_EQ(inputs.v.at(21, 0, 5), 0x1.19327ep-2);
  EXPECT_EQ(inputs.d_o.at(13, 3, 0), -0x1.81016p-1);
  const std::map<std::string_view, std::uint64_t> digests = {
      {"normal", 0xE211791B25C58E85},    {"uniform", 0xAD7458ED85C58E85},  {"positive", 0xF3E8DF83A5C58E85},
      {"integers", 0x7A53AABEC5C58E85},  {"onehot", 0x7133AABEC5C58E85},   {"needle", 0x8846C91685C58E85},
      {"peaked", 0x25D1791B25C58E85},    {"constant", 0xFD12D57925C58E85}, {"rising", 0x5145C53C05C58E85},
      {"falling", 0x5145C53C05C58E85},   {"level", 0x69C99CDA05C58E85},    {"edge", 0x1885F52525C58E85},
      {"subnormal", 0x19D2DCEF25C58E85}, {"outliers", 0xEF69A8A6E5C58E85}, {"cancel", 0xFFE39BEE05C58E85},
  };
  for (const Family& known : families()) {
    if (known.kind == FamilyKind::captured || known.kind == FamilyKind::exact) continue;
    Problem problem = ragged();
    problem.fill.family = known.name;
    ASSERT_TRUE(digests.contains(known.name)) << known.name;
    EXPECT_EQ(digest(make_inputs(problem)), digests.at(known.name)) << known.name;
  }
}

TEST(Inputs, DoNotDependOnTheLayout) {
  for (const Family& known : families()) {
    if (known.kind == FamilyKind::captured || known.kind == FamilyKind::exact) continue;
    SCOPED_TRACE(known.name);
    Problem problem = ragged();
    problem.fill.family = known.name;
    const Inputs want = make_inputs(problem);
    problem.layout = Layout::bhsd;
    expect_equal_tensors(want, make_inputs(problem));
    problem.pad = PadSide::left;
    problem.extent_q = 20;
    expect_equal_tensors(want, make_inputs(problem));
    problem.strides[static_cast<std::size_t>(TensorId::k)] = Strides{10'000, 100, 1000};
    expect_equal_tensors(want, make_inputs(problem));
    problem = ragged();
    problem.fill.family = known.name;
    problem.layout = Layout::thd;
    problem.extent_k = 50;
    expect_equal_tensors(want, make_inputs(problem));
  }
}

TEST(Inputs, NormalElementsDependOnTheirOwnIndicesAlone) {
  const Problem problem = ragged();
  Problem larger = problem;
  larger.seq_q = {6, 4, 10, 2};
  larger.seq_k = {9, 3, 30, 1};
  larger.heads_q = 9;
  larger.heads_kv = 3;
  larger.dim = 16;
  larger.causal = Causal::top_left;
  larger.scale = 7;
  const Inputs few = make_inputs(problem), many = make_inputs(larger);
  EXPECT_EQ(few.q.at(5 + 8, 3, 7), many.q.at(6 + 4 + 8, 3, 7));
  EXPECT_EQ(few.k.at(7 + 2, 1, 5), many.k.at(9 + 2, 1, 5));
  EXPECT_EQ(few.v.at(7 + 3 + 11, 0, 5), many.v.at(9 + 3 + 11, 0, 5));
  larger.dtype = Dtype::f64;
  const double unrounded = make_inputs(larger).q.at(18, 3, 7);
  EXPECT_NE(unrounded, many.q.at(18, 3, 7));
  EXPECT_EQ(round_to(Dtype::f32, unrounded), many.q.at(18, 3, 7));
}

TEST(Inputs, AreMadeOnlyWhereTheProblemUsesThem) {
  Problem problem = ragged();
  problem.direction = Direction::forward;
  const Inputs inputs = make_inputs(problem);
  EXPECT_TRUE(inputs.d_o.empty());
  EXPECT_TRUE(inputs.d_lse.empty());
  EXPECT_TRUE(inputs.bias.empty());
  EXPECT_TRUE(inputs.mask.empty());
  EXPECT_TRUE(inputs.block_mask.empty());
  EXPECT_TRUE(inputs.alibi_slopes.empty());
  EXPECT_EQ(inputs.q.tokens, 14);
  EXPECT_EQ(inputs.v.width, 6);
}

/// sum x y / sqrt(sum x^2 sum y^2) times sqrt(n): about N(0, 1) for independent values.
double correlation_in_sigmas(std::span<const double> x, std::span<const double> y) {
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t n = 0; n < x.size(); ++n) xy += x[n] * y[n], xx += x[n] * x[n], yy += y[n] * y[n];
  return xy / std::sqrt(xx * yy) * std::sqrt(static_cast<double>(x.size()));
}

/// About 60 pairs of samples of 32,768 normals, each below 5 sigma: false alarm 3e-5 (once, the seed is fixed).
TEST(Inputs, TensorsSeedsBatchesHeadsAndRowsAreIndependent) {
  Problem problem;
  problem.seq_q = problem.seq_k = {128, 128};
  problem.heads_q = problem.heads_kv = 2;
  problem.dim = 64;
  const Inputs first = make_inputs(problem);
  problem.fill.seed = 1;
  const Inputs second = make_inputs(problem);
  const auto check = [](std::span<const double> x, std::span<const double> y, const std::string& what) {
    EXPECT_LT(std::abs(correlation_in_sigmas(x, y)), 5) << what;
  };
  for (const TensorId a : kInputs) {
    const std::span<const double> x = tensor(first, a).data;
    for (const TensorId b : kInputs) {
      const std::string pair = std::string(name_of(a)) + " " + std::string(name_of(b));
      if (a != b) check(x, tensor(first, b).data, pair);
      check(x, tensor(second, b).data, pair + " of the next seed");
      check(x.subspan(1), std::span(tensor(second, b).data).first(x.size() - 1), pair + " of the next seed, shifted");
      if (a != b) check(x.subspan(1), std::span(tensor(first, b).data).first(x.size() - 1), pair + " shifted");
    }
    const std::size_t half = x.size() / 2;
    check(x.first(half), x.subspan(half), std::string(name_of(a)) + " across batches");
    for (const std::size_t lag : {1u, 2u, 64u, 128u, 256u}) {  // columns, heads, rows
      check(x.subspan(lag), x.first(x.size() - lag), std::string(name_of(a)) + " lag " + std::to_string(lag));
    }
  }
}

/// [b, i, h] of each row of a tensor next to its token number.
template <typename Visit>
void for_each_row(const Problem& problem, TensorId id, Visit visit) {
  const auto& lengths = is_query_side(id) ? problem.seq_q : problem.seq_k;
  std::int64_t token = 0;
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    for (std::int64_t i = 0; i < lengths[static_cast<std::size_t>(b)]; ++i, ++token) {
      for (std::int64_t h = 0; h < extents_of(problem, id).heads; ++h) visit(b, i, h, token);
    }
  }
}

/// Wherever two elements have one address they are equal, for every set of expanded dimensions; and rows at
/// different addresses differ.
TEST(Inputs, ElementsThatShareStorageAreEqual) {
  for (const Family& known : families()) {
    const bool varied = known.kind == FamilyKind::random || known.name == "rising" || known.name == "falling";
    if (!varied) continue;
    for (int expanded = 0; expanded < 8; ++expanded) {
      for (int variant = 0; variant < 3; ++variant) {
        Problem problem = ragged();
        problem.fill.family = known.name;
        if (variant == 1) problem.pad = PadSide::left;
        if (variant == 2) problem.layout = Layout::thd;
        for (const TensorId id : kInputs) {
          Strides strides = strides_of(problem, id);
          if (expanded & 1) strides.batch = 0;
          if (expanded & 2) strides.seq = 0;
          if (expanded & 4) strides.head = 0;
          problem.strides[static_cast<std::size_t>(id)] = strides;
        }
        const Inputs inputs = make_inputs(problem);
        for (const TensorId id : kInputs) {
          const Values& values = tensor(inputs, id);
          std::map<std::int64_t, std::vector<double>> by_offset;
          for_each_row(problem, id, [&](std::int64_t b, std::int64_t i, std::int64_t h, std::int64_t token) {
            const auto row = values.row(token, h);
            const auto [at, is_new] = by_offset.try_emplace(offset_of(problem, id, b, i, h), row.begin(), row.end());
            const bool equal = is_new || std::equal(row.begin(), row.end(), at->second.begin());
            ASSERT_TRUE(equal) << known.name << ' ' << name_of(id) << ' ' << expanded << ' ' << variant;
          });
          if (known.name != "normal") continue;
          std::map<std::vector<double>, int> distinct;
          for (const auto& [offset, row] : by_offset) ++distinct[row];
          EXPECT_EQ(distinct.size(), by_offset.size()) << name_of(id) << ' ' << expanded << ' ' << variant;
        }
      }
    }
  }
}

TEST(Inputs, MaskShowsItsDensityAndHidesOneRowInSixteen) {
  Problem problem;
  problem.seq_q = {256, 200};
  problem.seq_k = {128, 100};
  problem.heads_q = 4;
  problem.mask = ExplicitMask{{true, true, true, true}, 0.3};
  const Operand<std::uint8_t> mask = make_inputs(problem).mask;
  ASSERT_EQ(mask.data.size(), 2u * 4 * 256 * 128);
  double shown = 0, hidden_rows = 0;
  for (std::size_t row = 0; row < 2048; ++row) {
    double in_row = 0;
    for (std::size_t j = 0; j < 128; ++j) in_row += mask.data[row * 128 + j];
    shown += in_row;
    hidden_rows += in_row == 0;
  }
  EXPECT_NEAR(hidden_rows, 128, 5 * std::sqrt(128.0));                     // 5 sigma
  EXPECT_NEAR(shown / (128 * (2048 - hidden_rows)), 0.3, 5 * 0.46 / 500);  // 5 sigma of 246,000 entries
}

TEST(Inputs, MaskIsBroadcastAndHidesNoRowsWithoutAQueryDimension) {
  Problem problem = ragged();
  problem.mask = ExplicitMask{{true, false, false, true}, 0.5};
  problem.seq_k = {200, 3, 12};
  Operand<std::uint8_t> mask = make_inputs(problem).mask;
  EXPECT_EQ(mask.data.size(), 3u * 200);
  EXPECT_EQ(mask.at(2, 3, 8, 11), mask.at(2, 0, 0, 11));
  for (std::int64_t b = 0; b < 3; ++b) {
    std::int64_t shown = 0;
    for (std::int64_t j = 0; j < 200; ++j) shown += mask.at(b, 0, 0, j);
    EXPECT_NEAR(static_cast<double>(shown), 100, 5 * std::sqrt(50.0));
  }
  problem.mask->density = 1;
  problem.mask->shape = {false, true, true, true};
  mask = make_inputs(problem).mask;
  EXPECT_EQ(mask.data, std::vector<std::uint8_t>(4u * 9 * 200, 1)) << "density 1 hides nothing, not even rows";
  problem.mask->density = 0;
  mask = make_inputs(problem).mask;
  EXPECT_EQ(mask.data, std::vector<std::uint8_t>(4u * 9 * 200, 0));
}

TEST(Inputs, MasksChangeWithTheSeedAndNotWithTypeLayoutOrFamily) {
  Problem problem = ragged();
  problem.mask = ExplicitMask{{true, true, true, true}, 0.5};
  problem.block = BlockMask{2, 3, -1, 0, 0.5};
  const Inputs want = make_inputs(problem);
  Problem other = problem;
  other.dtype = Dtype::f16;
  other.layout = Layout::thd;
  other.fill.family = "peaked";
  EXPECT_EQ(make_inputs(other).mask.data, want.mask.data);
  EXPECT_EQ(make_inputs(other).block_mask.data, want.block_mask.data);
  other.fill.seed = 4;
  EXPECT_NE(make_inputs(other).mask.data, want.mask.data);
  EXPECT_NE(make_inputs(other).block_mask.data, want.block_mask.data);
}

TEST(Inputs, BlockMaskShowsLocalGlobalAndRandomTiles) {
  Problem problem;
  problem.seq_q = {100};
  problem.seq_k = {130};
  problem.heads_q = 2;
  problem.block = BlockMask{16, 32, 1, 0, 0};
  const auto expect_tiles = [&](auto shows) {
    const Operand<std::uint8_t> mask = make_inputs(problem).block_mask;
    ASSERT_EQ(mask.data.size(), 2u * 7 * 5);
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t i = 0; i < 7; ++i) {
        for (std::int64_t j = 0; j < 5; ++j) EXPECT_EQ(mask.at(0, h, i, j), shows(i, j) ? 1 : 0) << i << ' ' << j;
      }
    }
  };
  expect_tiles([](std::int64_t i, std::int64_t j) { return std::abs(i - j) <= 1; });
  problem.block = BlockMask{16, 32, -1, 2, 0};
  expect_tiles([](std::int64_t i, std::int64_t j) { return i < 2 || j < 2; });
  problem.block = BlockMask{16, 32, 0, 1, 0};
  expect_tiles([](std::int64_t i, std::int64_t j) { return i == j || i < 1 || j < 1; });
  problem.block = BlockMask{16, 32, -1, 0, 1};
  expect_tiles([](std::int64_t, std::int64_t) { return true; });
  problem.block = BlockMask{16, 32, -1, 0, 0};
  expect_tiles([](std::int64_t, std::int64_t) { return false; });
  problem.seq_q = problem.seq_k = {2000};
  problem.block = BlockMask{20, 20, -1, 0, 0.2};
  double shown = 0;
  for (const std::uint8_t tile : make_inputs(problem).block_mask.data) shown += tile;
  EXPECT_NEAR(shown, 0.2 * 20'000, 5 * std::sqrt(0.16 * 20'000));
}

TEST(Inputs, BiasIsNormalInItsTypeAndHidesItsShare) {
  Problem problem;
  problem.dtype = Dtype::bf16;
  problem.seq_q = problem.seq_k = {200};
  problem.bias = Bias{{}, std::nullopt, 0.25};
  const Operand<double> bias = make_inputs(problem).bias;
  ASSERT_EQ(bias.data.size(), 40'000u);
  double hidden = 0, squares = 0;
  for (const double value : bias.data) {
    if (value == -kInf) {
      ++hidden;
    } else {
      squares += value * value;
      ASSERT_EQ(value, round_to(Dtype::bf16, value));
    }
  }
  EXPECT_NEAR(hidden, 10'000, 5 * std::sqrt(7'500.0));
  EXPECT_NEAR(squares / (40'000 - hidden), 1, 5 * std::sqrt(2.0 / 30'000));
  problem.bias->hide = 0;
  for (const double value : make_inputs(problem).bias.data) ASSERT_TRUE(std::isfinite(value));
  problem.bias->hide = 1;
  for (const double value : make_inputs(problem).bias.data) ASSERT_EQ(value, -kInf);
}

TEST(Inputs, SlopesArePowersOfTwoInF32) {
  Problem problem;
  problem.alibi = true;
  problem.heads_q = 8;
  EXPECT_EQ(make_inputs(problem).alibi_slopes,
            (std::vector<double>{0x1p-1, 0x1p-2, 0x1p-3, 0x1p-4, 0x1p-5, 0x1p-6, 0x1p-7, 0x1p-8}));
  for (const std::int64_t heads : {1, 2, 3, 5, 7, 12, 32, 40, 71}) {
    problem.heads_q = heads;
    const std::vector<double> slopes = make_inputs(problem).alibi_slopes;
    ASSERT_EQ(static_cast<std::int64_t>(slopes.size()), heads);
    for (std::int64_t h = 0; h < heads; ++h) {
      const double want = std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(heads));
      EXPECT_EQ(slopes[static_cast<std::size_t>(h)], static_cast<double>(static_cast<float>(want)));
    }
  }
}

TEST(Inputs, GradientOfLseIsNormalInItsType) {
  Problem problem;
  problem.seq_q = {1000, 0, 24};
  problem.seq_k = {1, 1, 1};
  problem.heads_q = 8;
  problem.d_lse = true;
  const std::vector<double> d_lse = make_inputs(problem).d_lse;
  ASSERT_EQ(d_lse.size(), 8192u);
  double squares = 0;
  for (const double value : d_lse) {
    squares += value * value;
    ASSERT_EQ(value, round_to(Dtype::f32, value));
  }
  EXPECT_NEAR(squares / 8192, 1, 5 * std::sqrt(2.0 / 8192));
  problem.dtype = Dtype::f64;
  EXPECT_NE(make_inputs(problem).d_lse, d_lse);
}

TEST(Inputs, UnknownFamiliesAreRefusedWithTheListOfKnownOnes) {
  Problem problem;
  problem.fill.family = "gauss";
  try {
    make_inputs(problem);
    FAIL() << "not refused";
  } catch (const InvalidRequest& error) {
    EXPECT_EQ(error.field(), "fill");
    EXPECT_NE(error.allowed().find("normal, uniform"), std::string::npos);
  }
  problem.fill = {.family = "file", .parameter = {}, .seed = 0, .path = "no/such/file"};
  EXPECT_THROW(make_inputs(problem), InvalidRequest);
}

}  // namespace
}  // namespace attest

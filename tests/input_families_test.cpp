// SPDX-License-Identifier: Apache-2.0
// What each input family promises, in every storage type it can, by plain loops over the generated values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "reference/problem/inputs.h"

namespace attest {
namespace {

Problem problem_of(std::string family, Dtype dtype = Dtype::f32) {
  Problem problem;
  problem.dtype = dtype;
  problem.seq_q = {96};
  problem.seq_k = {256};
  problem.heads_q = 4;
  problem.heads_kv = 2;
  problem.fill.family = std::move(family);
  problem.fill.seed = 17;
  return problem;
}

/// scale <q_i, k_j> of one query head: [Sq, Sk].
std::vector<std::vector<double>> scores(const Problem& problem, const Inputs& inputs, std::int64_t head) {
  std::vector<std::vector<double>> result;
  for (std::int64_t i = 0; i < inputs.q.tokens; ++i) {
    auto& row = result.emplace_back();
    for (std::int64_t j = 0; j < inputs.k.tokens; ++j) {
      double dot = 0;
      for (std::int64_t d = 0; d < problem.dim; ++d)
        dot += inputs.q.at(i, head, d) * inputs.k.at(j, head / problem.group(), d);
      row.push_back(problem.effective_scale() * dot);
    }
  }
  return result;
}

std::vector<double> softmax(std::vector<double> row) {
  const double top = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (double& value : row) sum += value = std::exp(value - top);
  for (double& value : row) value /= sum;
  return row;
}

std::vector<std::string> generated_families() {
  std::vector<std::string> names;
  for (const Family& known : families()) {
    if (known.kind != FamilyKind::captured && known.kind != FamilyKind::exact) names.emplace_back(known.name);
  }
  return names;
}

TEST(InputFamilies, TableNamesEachOnceWithKindAndMeaning) {
  std::set<std::string_view> names;
  for (const Family& known : families()) {
    EXPECT_TRUE(names.insert(known.name).second) << known.name;
    EXPECT_FALSE(known.description.empty()) << known.name;
    EXPECT_EQ(&family(known.name), &known);
    EXPECT_EQ(known.parameter.empty(), known.default_parameter == 0) << known.name;
  }
  EXPECT_EQ(names.size(), 29u);
  EXPECT_EQ(family("normal").kind, FamilyKind::random);
  EXPECT_EQ(family("constant").kind, FamilyKind::structured);
  EXPECT_EQ(family("file").kind, FamilyKind::captured);
}

/// Whatever the type, width, scale and parameter: every input is finite and a value of the type.
TEST(InputFamilies, AreFiniteAndRepresentableForEveryScaleWidthAndType) {
  for (const std::string& name : generated_families()) {
    for (const Dtype dtype : kDtypes) {
      for (const double scale : {0.0, -0.125, 1e-30, 1e30, 0.2}) {
        for (const std::int64_t dim : {1, 2, 5, 64}) {
          Problem problem = problem_of(name, dtype);
          problem.seq_q = {3, 0, 2};
          problem.seq_k = {40, 2, 0};
          problem.scale = scale;
          problem.dim = dim;
          problem.dim_v = 3;
          problem.causal = Causal::bottom_right;
          if (!family(name).parameter.empty() && dim == 5) problem.fill.parameter = -1e30;
          const Inputs inputs = make_inputs(problem);
          for (const Values* values : {&inputs.q, &inputs.k, &inputs.v, &inputs.d_o}) {
            for (const double value : values->data) {
              ASSERT_TRUE(std::isfinite(value)) << name << ' ' << name_of(dtype) << ' ' << scale << ' ' << dim;
              ASSERT_EQ(round_to(dtype, value), value) << name;
            }
          }
        }
      }
    }
  }
}

TEST(InputFamilies, UniformAndPositiveKeepToTheirRangeAndFillIt) {
  const Inputs uniform = make_inputs(problem_of("uniform")), positive = make_inputs(problem_of("positive"));
  for (const auto& [values, low] : {std::pair(&uniform.v, -1.0), std::pair(&positive.v, 0.0)}) {
    const auto [least, most] = std::minmax_element(values->data.begin(), values->data.end());
    EXPECT_GE(*least, low);
    EXPECT_LT(*least, low + 0.01);
    EXPECT_LE(*most, 1);
    EXPECT_GT(*most, 0.99);
  }
}

TEST(InputFamilies, IntegersHaveSumsExactInF32) {
  for (const Dtype dtype : kDtypes) {
    Problem problem = problem_of("integers", dtype);
    const Inputs inputs = make_inputs(problem);
    std::set<double> seen;
    for (const Values* values : {&inputs.q, &inputs.k, &inputs.v, &inputs.d_o})
      seen.insert(values->data.begin(), values->data.end());
    EXPECT_EQ(seen, (std::set<double>{-3, -2, -1, 0, 1, 2, 3}));
  }
  const Problem problem = problem_of("integers");
  const Inputs inputs = make_inputs(problem);
  for (std::int64_t i = 0; i < 96; ++i) {
    float forwards = 0, backwards = 0;
    for (std::int64_t d = 0; d < 64; ++d) {
      forwards += static_cast<float>(inputs.q.at(i, 0, d)) * static_cast<float>(inputs.k.at(i, 0, d));
      backwards += static_cast<float>(inputs.q.at(i, 0, 63 - d)) * static_cast<float>(inputs.k.at(i, 0, 63 - d));
    }
    EXPECT_EQ(forwards, backwards);
  }
}

TEST(InputFamilies, OneHotRowsHaveOneElementInColumnsWithoutPeriod) {
  const Inputs inputs = make_inputs(problem_of("onehot"));
  std::set<std::int64_t> columns, steps;
  std::int64_t previous = 0;
  for (std::int64_t j = 0; j < 256; ++j) {
    EXPECT_EQ(std::count(inputs.v.row(j, 0).begin(), inputs.v.row(j, 0).end(), 0.0), 63);
    EXPECT_EQ(std::count(inputs.k.row(j, 0).begin(), inputs.k.row(j, 0).end(), 4.0), 1);
    const auto row = inputs.v.row(j, 0);
    const std::int64_t column = std::find(row.begin(), row.end(), 1.0) - row.begin();
    columns.insert(column);
    steps.insert(column - previous);
    previous = column;
  }
  EXPECT_GT(columns.size(), 50u);
  EXPECT_GT(steps.size(), 60u) << "columns do not advance by a fixed step";
}

TEST(InputFamilies, NeedleDominatesEveryRowInEveryType) {
  for (const Dtype dtype : kDtypes) {
    for (const double scale : {0.125, -0.5}) {
      Problem problem = problem_of("needle", dtype);
      problem.scale = scale;
      const Inputs inputs = make_inputs(problem);
      for (const std::int64_t head : {0, 3}) {
        for (const auto& row : scores(problem, inputs, head)) {
          const std::vector<double> p = softmax(row);
          EXPECT_GT(*std::max_element(p.begin(), p.end()), 0.99) << name_of(dtype);
        }
      }
    }
  }
}

std::vector<std::int64_t> needles(const Problem& problem) {
  const Inputs inputs = make_inputs(problem);
  std::vector<std::int64_t> keys;
  for (std::int64_t head = 0; head < problem.heads_q; ++head) {
    for (const auto& row : scores(problem, inputs, head)) {
      keys.push_back(std::max_element(row.begin(), row.end()) - row.begin());
    }
  }
  return keys;
}

TEST(InputFamilies, NeedlesMeetTileEdgesAndTheEnds) {
  const std::vector<std::int64_t> keys = needles(problem_of("needle"));
  EXPECT_TRUE(std::count(keys.begin(), keys.end(), 0) > 0);
  EXPECT_TRUE(std::count(keys.begin(), keys.end(), 255) > 0);
  std::set<std::int64_t> edges;
  for (const std::int64_t key : keys) {
    if ((key + 1) % 16 <= 2) edges.insert((key + 1) / 16);
  }
  EXPECT_EQ(edges.size(), 17u) << "every multiple of 16 from 0 to 256 has a needle within one key of it";
  EXPECT_GT(std::set(keys.begin(), keys.end()).size(), 100u);
}

TEST(InputFamilies, NeedlesMeetBothSidesOfTheMaskEdge) {
  Problem problem = problem_of("needle");
  problem.causal = Causal::bottom_right;
  problem.window = Window{20, 0, Causal::none};
  const std::vector<std::int64_t> keys = needles(problem);
  int last = 0, past = 0, first = 0, before = 0, inside = 0;
  for (std::size_t n = 0; n < keys.size(); ++n) {
    const std::int64_t edge = static_cast<std::int64_t>(n % 96) + 256 - 96;
    last += keys[n] == edge, past += keys[n] == edge + 1;
    first += keys[n] == edge - 20, before += keys[n] == edge - 21;
    inside += keys[n] >= edge - 20 && keys[n] <= edge;
  }
  for (const int count : {last, past, first, before}) EXPECT_GT(count, 384 / 16 / 3);
  EXPECT_GT(inside, 384 * 6 / 10);
}

TEST(InputFamilies, PeakedScalesQueriesAlone) {
  Problem problem = problem_of("normal", Dtype::f64);
  const Inputs normal = make_inputs(problem);
  problem.fill = {.family = "peaked", .parameter = 4, .seed = 17, .path = ""};
  const Inputs peaked = make_inputs(problem);
  EXPECT_EQ(peaked.k.data, normal.k.data);
  EXPECT_EQ(peaked.v.data, normal.v.data);
  for (std::size_t n = 0; n < normal.q.data.size(); ++n) ASSERT_EQ(peaked.q.data[n], 4 * normal.q.data[n]);
  problem.fill.parameter.reset();
  EXPECT_EQ(make_inputs(problem).q.data[5], 8 * normal.q.data[5]);
}

TEST(InputFamilies, ConstantScoresAreEqualToTheLastBit) {
  const Problem problem = problem_of("constant");
  const Inputs inputs = make_inputs(problem);
  for (const auto& row : scores(problem, inputs, 3)) {
    EXPECT_EQ(std::count(row.begin(), row.end(), row.front()), 256);
  }
  EXPECT_NE(inputs.k.at(0, 0, 0), inputs.k.at(0, 1, 0));
  EXPECT_NE(inputs.q.at(0, 0, 0), inputs.q.at(1, 0, 0));
}

TEST(InputFamilies, LevelScoresAreNearTheLevelInEveryType) {
  for (const Dtype dtype : kDtypes) {
    for (const double level : {-120.0, -700.0, 90.0}) {
      for (const double scale : {0.125, -0.3, 1.0}) {
        Problem problem = problem_of("level", dtype);
        problem.scale = scale;
        problem.fill.parameter = level;
        for (const auto& row : scores(problem, make_inputs(problem), 1)) {
          for (const double score : row) {
            ASSERT_NEAR(score, level, 2 + 0.02 * std::abs(level)) << name_of(dtype) << ' ' << level << ' ' << scale;
          }
        }
      }
    }
  }
}

double maximum(const std::vector<double>& row, std::size_t first, std::size_t last) {
  return *std::max_element(row.begin() + static_cast<std::ptrdiff_t>(first),
                           row.begin() + static_cast<std::ptrdiff_t>(last));
}

TEST(InputFamilies, RisingMaximaRiseInEachTileAndFallingOnesFall) {
  for (const Dtype dtype : kDtypes) {
    for (const double scale : {0.125, -0.4}) {
      Problem problem = problem_of("rising", dtype);
      problem.scale = scale;
      problem.seq_q = {16};
      problem.seq_k = {700};
      for (const auto& row : scores(problem, make_inputs(problem), 2)) {
        for (std::size_t tile = 1; tile < 43; ++tile) {
          const double rise = maximum(row, 16 * tile, 16 * tile + 16) - maximum(row, 16 * tile - 16, 16 * tile);
          ASSERT_NEAR(rise, 20, 7) << name_of(dtype) << " tile " << tile;
        }
      }
      problem.fill.family = "falling";
      problem.fill.parameter = 50;
      for (const auto& row : scores(problem, make_inputs(problem), 2)) {
        EXPECT_NEAR(maximum(row, 0, 16), 0, 3);
        for (std::size_t tile = 1; tile < 43; ++tile) {
          const double fall = maximum(row, 16 * tile - 16, 16 * tile) - maximum(row, 16 * tile, 16 * tile + 16);
          ASSERT_NEAR(fall, 50, 10) << name_of(dtype) << " tile " << tile;
        }
      }
    }
  }
}

/// The largest magnitudes of the exact results, by the contract's formulas for one case without masks.
struct Largest {
  double o = 0, dq = 0, dk = 0, dv = 0, sum = 0;  // sum: of |v| over keys, as an unnormalised accumulator may reach
};

Largest largest_results(const Problem& problem, const Inputs& inputs) {
  Largest largest;
  const auto raise = [](double& to, double value) {
    to = std::max(to, std::isnan(value) ? INFINITY : std::abs(value));
  };
  Values dk(inputs.k.tokens, inputs.k.heads, inputs.k.width), dv(inputs.v.tokens, inputs.v.heads, inputs.v.width);
  for (std::int64_t h = 0; h < problem.heads_q; ++h) {
    const std::int64_t hk = h / problem.group();
    const auto s = scores(problem, inputs, h);
    for (std::int64_t i = 0; i < inputs.q.tokens; ++i) {
      const std::vector<double> p = softmax(s[static_cast<std::size_t>(i)]);
      std::vector<double> dp(p.size());
      double delta = 0;
      for (std::size_t j = 0; j < p.size(); ++j) {
        const auto v = inputs.v.row(static_cast<std::int64_t>(j), hk);
        for (std::size_t c = 0; c < v.size(); ++c) dp[j] += inputs.d_o.row(i, h)[c] * v[c];
        delta += p[j] * dp[j];
      }
      for (std::int64_t c = 0; c < problem.width_v(); ++c) {
        double o = 0, sum = 0;
        for (std::size_t j = 0; j < p.size(); ++j) {
          const auto key = static_cast<std::int64_t>(j);
          o += p[j] * inputs.v.at(key, hk, c);
          sum += std::abs(inputs.v.at(key, hk, c));
          dv.at(key, hk, c) += p[j] * inputs.d_o.at(i, h, c);
        }
        raise(largest.o, o), raise(largest.sum, sum);
      }
      for (std::int64_t d = 0; d < problem.dim; ++d) {
        double dq = 0;
        for (std::size_t j = 0; j < p.size(); ++j) {
          const double ds = problem.effective_scale() * p[j] * (dp[j] - delta);
          dq += ds * inputs.k.at(static_cast<std::int64_t>(j), hk, d);
          dk.at(static_cast<std::int64_t>(j), hk, d) += ds * inputs.q.at(i, h, d);
        }
        raise(largest.dq, dq);
      }
    }
  }
  for (const double value : dk.data) raise(largest.dk, value);
  for (const double value : dv.data) raise(largest.dv, value);
  return largest;
}

TEST(InputFamilies, EdgeReachesTheEndOfTheRangeWithFiniteResults) {
  for (const Dtype dtype : kDtypes) {
    for (const Dtype out :
         {dtype == Dtype::f64 ? Dtype::f64 : Dtype::f16, dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " to " + std::string(name_of(out)));
      Problem problem = problem_of("edge", dtype);
      problem.out_dtype = out;
      const Inputs inputs = make_inputs(problem);
      const Largest largest = largest_results(problem, inputs);
      const double limit = format_of(out).max;
      for (const double value : {largest.o, largest.dq, largest.dk, largest.dv}) EXPECT_LT(value, limit);
      for (const double value : {largest.dq, largest.dk, largest.dv}) EXPECT_GT(value, 0);
      EXPECT_LT(largest.sum, format_of(dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32).max);
      double top = 0;
      for (const double value : inputs.v.data) top = std::max(top, std::abs(value));
      const double within_reach =
          dtype == Dtype::f64 ? 0x1p400 : std::min({format_of(dtype).max, limit, 0x1p120 / 1024});
      EXPECT_GT(top, 0.99 * within_reach);
    }
  }
}

TEST(InputFamilies, SubnormalValuesAreSubnormal) {
  for (const Dtype dtype : kDtypes) {
    SCOPED_TRACE(name_of(dtype));
    const Inputs inputs = make_inputs(problem_of("subnormal", dtype));
    const double normal = format_of(dtype).min_normal();
    const auto share = [&](const Values& values) {
      return static_cast<double>(std::count_if(values.data.begin(), values.data.end(),
                                               [&](double x) { return std::abs(x) < normal; })) /
             static_cast<double>(values.data.size());
    };
    EXPECT_EQ(share(inputs.v), 1);
    EXPECT_NEAR(share(inputs.q), 0.25, dtype == Dtype::f8e4m3 ? 0.04 : 0.02);  // some normals are subnormal in e4m3
    EXPECT_GT(std::count_if(inputs.v.data.begin(), inputs.v.data.end(), [](double x) { return x != 0; }), 25'000);
  }
}

TEST(InputFamilies, OutliersAreOneInAThousand) {
  Problem problem = problem_of("outliers");
  problem.seq_k = {4096};
  const Inputs inputs = make_inputs(problem);
  const auto beyond = [](const Values& values) {
    return static_cast<double>(
        std::count_if(values.data.begin(), values.data.end(), [](double x) { return std::abs(x) > 6; }));
  };
  const double expected = 0.001 * 524'288 * 0.5506;  // P(|N(0, 101)| > 6)
  EXPECT_NEAR(beyond(inputs.v), expected, 5 * std::sqrt(expected));
  EXPECT_NEAR(beyond(inputs.k), expected, 5 * std::sqrt(expected));
}

TEST(InputFamilies, CancelAlternatesALargeOffset) {
  const Problem problem = problem_of("cancel");
  const Inputs inputs = make_inputs(problem);
  for (const Values* values : {&inputs.v, &inputs.d_o}) {
    for (std::int64_t i = 0; i < values->tokens; ++i) {
      for (const double value : values->row(i, 0)) ASSERT_NEAR(value, i % 2 == 0 ? 16 : -16, 6);
    }
  }
  const Largest largest = largest_results(problem, inputs);
  EXPECT_LT(largest.o, 12) << "the offsets cancel";
}

}  // namespace
}  // namespace attest

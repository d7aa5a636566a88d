// SPDX-License-Identifier: Apache-2.0
// The algebra of online-softmax states: hand values, and the laws as properties.
#include "reference/models/softmax_state.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A state that owns its u.
struct Owned {
  explicit Owned(std::size_t width) : u(width), state{.u = u} {}
  Owned(const Owned& other) : u(other.u), state{other.state.m, other.state.l, u} {}
  Owned& operator=(const Owned&) = delete;
  std::vector<double> u;  // [Dv]
  SoftmaxState<double> state;
};

TEST(SoftmaxState, MergesATileByHand) {
  // (m, l, u) = (2, 1.5, 6) with scores 3 and 1 of values 10 and 20: l' = 1.5/e + 1 + e^-2, u' = 6/e + 10 + 20 e^-2.
  std::vector<double> u = {6};
  SoftmaxState<double> state{2, 1.5, u};
  const std::vector<double> scores = {3, 1}, values = {10, 20};
  absorb<double>(state, scores, values);
  EXPECT_EQ(state.m, 3);
  EXPECT_NEAR(state.l, 1.6871, 1e-4);
  EXPECT_NEAR(u[0], 14.9140, 1e-4);
  EXPECT_NEAR(finish(state), 3 + std::log(1.687154), 1e-6);
  EXPECT_NEAR(u[0], 8.840, 5e-4);
}

// The seed example of the project: query row 4 in tiles of two keys.
TEST(SoftmaxState, PassesThroughTheSeedExamplesStates) {
  const std::array<double, 3> q = {1, -5, 3};
  const double k[5][3] = {{2, 1, -1}, {-1, 3, 2}, {4, -2, 0}, {0, 1, 5}, {-3, 2, 1}};
  const double v[5][2] = {{1, 0}, {0, 2}, {3, -1}, {-2, 4}, {5, 1}};
  const double want[3][2] = {{-3.464102, 1.099321}, {8.082904, 1.099331}, {8.082904, 1.099332}};
  Owned row(2);
  for (std::size_t tile = 0; tile < 3; ++tile) {
    std::vector<double> scores, values;
    for (std::size_t j = 2 * tile; j < std::min<std::size_t>(2 * tile + 2, 5); ++j) {
      scores.push_back(std::inner_product(q.begin(), q.end(), k[j], 0.0) / std::sqrt(3.0));
      values.insert(values.end(), v[j], v[j] + 2);
    }
    absorb<double>(row.state, scores, values);
    EXPECT_NEAR(row.state.m, want[tile][0], 5e-7);
    EXPECT_NEAR(row.state.l, want[tile][1], 5e-7);
  }
}

struct Keys {
  std::vector<double> scores;
  std::vector<double> values;  // [n, 2]
};

rc::Gen<double> score() {
  return rc::gen::weightedOneOf<double>(
      {{6, rc::gen::map(rc::gen::inRange(-40000, 40000), [](int x) { return x / 1000.0; })},
       {1, rc::gen::just(-kInfinity)}});
}

rc::Gen<Keys> keys() {
  return rc::gen::mapcat(rc::gen::inRange<std::size_t>(0, 12), [](std::size_t n) {
    return rc::gen::map(
        rc::gen::pair(rc::gen::container<std::vector<double>>(n, score()),
                      rc::gen::container<std::vector<double>>(
                          2 * n, rc::gen::map(rc::gen::inRange(-1000, 1000), [](int x) { return x / 100.0; }))),
        [](std::pair<std::vector<double>, std::vector<double>> x) {
          return Keys{x.first, x.second};
        });
  });
}

Owned state_of(const Keys& x) {
  Owned row(2);
  absorb<double>(row.state, x.scores, x.values);
  return row;
}

Owned merged(const Owned& a, const Owned& b) {
  Owned to(a);
  merge(to.state, b.state);
  return to;
}

/// Equal within rounding, of the size of what was summed: l for l, 10 l for u (values are within 10).
void require_close(const Owned& a, const Owned& b) {
  RC_ASSERT(a.state.m == b.state.m);
  RC_ASSERT(std::abs(a.state.l - b.state.l) <= 1e-13 * a.state.l);
  for (std::size_t c = 0; c < 2; ++c) RC_ASSERT(std::abs(a.u[c] - b.u[c]) <= 1e-12 * a.state.l);
}

RC_GTEST_PROP(SoftmaxStateProperties, MergeCommutes, ()) {
  const Owned a = state_of(*keys()), b = state_of(*keys());
  require_close(merged(a, b), merged(b, a));
}

RC_GTEST_PROP(SoftmaxStateProperties, MergeAssociates, ()) {
  const Owned a = state_of(*keys()), b = state_of(*keys()), c = state_of(*keys());
  require_close(merged(merged(a, b), c), merged(a, merged(b, c)));
}

RC_GTEST_PROP(SoftmaxStateProperties, TheNeutralElementChangesNoBit, ()) {
  const Owned a = state_of(*keys()), none(2);
  for (const Owned& got : {merged(a, none), merged(none, a)}) {
    RC_ASSERT(got.state.m == a.state.m);
    RC_ASSERT(got.state.l == a.state.l);
    RC_ASSERT(got.u == a.u);
  }
}

RC_GTEST_PROP(SoftmaxStateProperties, AnyPartitionInAnyOrderGivesTheSinglePass, ()) {
  const Keys all = *keys();
  const std::size_t n = all.scores.size();
  const auto parts = *rc::gen::container<std::vector<std::size_t>>(n, rc::gen::inRange<std::size_t>(0, 4));
  const auto order = *rc::gen::container<std::vector<int>>(n, rc::gen::inRange(0, 1000));
  std::vector<std::size_t> keys_in_order(n);
  std::iota(keys_in_order.begin(), keys_in_order.end(), 0);
  std::stable_sort(keys_in_order.begin(), keys_in_order.end(),
                   [&](std::size_t a, std::size_t b) { return order[a] < order[b]; });
  Owned got(2);
  for (std::size_t part = 0; part < 4; ++part) {
    Keys some;
    for (const std::size_t j : keys_in_order)
      if (parts[j] == part) {
        some.scores.push_back(all.scores[j]);
        some.values.insert(some.values.end(), {all.values[2 * j], all.values[2 * j + 1]});
      }
    merge(got.state, state_of(some).state);
  }
  require_close(state_of(all), got);
}

RC_GTEST_PROP(SoftmaxStateProperties, HiddenKeysNeverMakeNan, ()) {
  const Keys x = *keys();
  Owned row = state_of(x);
  const double lse = finish(row.state);
  RC_ASSERT(!std::isnan(lse));
  for (const double value : row.u) RC_ASSERT(!std::isnan(value));
  if (row.state.m == -kInfinity) {
    RC_ASSERT(lse == -kInfinity);
    RC_ASSERT(row.u == std::vector<double>(2));
  }
}

TEST(SoftmaxState, ANanScoreMakesTheResultNan) {
  Owned row(1);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  absorb<double>(row.state, std::vector<double>{1, nan, 2}, std::vector<double>{1, 1, 1});
  absorb<double>(row.state, std::vector<double>{5}, std::vector<double>{1});
  EXPECT_TRUE(std::isnan(finish(row.state)));
  EXPECT_TRUE(std::isnan(row.u[0]));
}

}  // namespace
}  // namespace attest

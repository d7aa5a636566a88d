// SPDX-License-Identifier: Apache-2.0
// The slow oracle's gradients against central differences of its own forward pass. With 256 bits and steps of 2^-80
// the differences are good to about 1e-45, so a missing factor cannot hide behind their error.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "reference/problem/case_text.h"
#include "tests/support/slow_oracle.h"

namespace attest {
namespace {

/// Deterministic values in (-1, 1) that differ in every element and tensor.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed) {}
  double next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(static_cast<std::int64_t>(state_)) * 0x1p-63;
  }
  std::vector<double> take(std::int64_t count) {
    std::vector<double> values;
    for (std::int64_t n = 0; n < count; ++n) values.push_back(next());
    return values;
  }
  Values take(std::int64_t tokens, std::int64_t heads, std::int64_t width) {
    Values values(tokens, heads, width);
    values.data = take(tokens * heads * width);
    return values;
  }

 private:
  std::uint64_t state_;
};

Inputs inputs_of(const Problem& problem) {
  Numbers numbers(problem.fill.seed + 1);
  Inputs in;
  in.q = numbers.take(problem.total_q(), problem.heads_q, problem.dim);
  in.k = numbers.take(problem.total_k(), problem.heads_kv, problem.dim);
  in.v = numbers.take(problem.total_k(), problem.heads_kv, problem.width_v());
  in.d_o = numbers.take(problem.total_q(), problem.heads_q, problem.width_v());
  if (problem.d_lse) in.d_lse = numbers.take(problem.total_q() * problem.heads_q);
  if (problem.bias) {
    const Broadcast& own = problem.bias->shape;
    in.bias = {own.batch ? problem.batch() : 1,
               own.head ? problem.heads_q : 1,
               own.query ? problem.max_q() : 1,
               own.key ? problem.max_k() : 1,
               {}};
    in.bias.data = numbers.take(in.bias.extent_b * in.bias.extent_h * in.bias.extent_q * in.bias.extent_k);
  }
  if (problem.mask) {
    in.mask = {1, 1, problem.max_q(), problem.max_k(), {}};
    for (std::int64_t n = 0; n < problem.max_q() * problem.max_k(); ++n) in.mask.data.push_back(numbers.next() > 0);
  }
  for (std::int64_t h = 0; problem.alibi && h < problem.heads_q; ++h) in.alibi_slopes.push_back(0.5 / (1.0 + h));
  return in;
}

/// The loss whose gradients the backward pass gives: sum <dO, O> + sum dLSE LSE over rows that see a key.
BigFloat loss(Problem problem, const slow::BigInputs& in) {
  problem.direction = Direction::forward;
  problem.d_bias = false;
  const slow::BigOutputs out = slow::attention(problem, in).value;
  BigFloat sum;
  for (std::size_t n = 0; n < out.o.data.size(); ++n) sum.add_product(in.d_o.data[n], out.o.data[n]);
  for (std::size_t n = 0; problem.d_lse && n < out.lse.size(); ++n) {
    const bool sees_a_key = BigFloat(-1e300) < out.lse[n];
    if (sees_a_key) sum.add_product(in.d_lse[n], out.lse[n]);
  }
  return sum;
}

/// Every element of `gradient` is the slope of the loss along the same element of `operand`, a part of `in`.
void expect_slopes(const Problem& problem, slow::BigInputs& in, std::vector<BigFloat>& operand,
                   const std::vector<BigFloat>& gradient, const std::string& name) {
  ASSERT_EQ(operand.size(), gradient.size()) << name;
  const BigFloat step = 0x1p-80;
  double largest = 0;
  for (std::size_t n = 0; n < operand.size(); ++n) {
    const BigFloat value = operand[n];
    operand[n] = value + step;
    const BigFloat above = loss(problem, in);
    operand[n] = value - step;
    const BigFloat below = loss(problem, in);
    operand[n] = value;
    const double diff = abs((above - below) / (step + step) - gradient[n]).to_double();
    EXPECT_TRUE(diff <= 1e-40) << name << "[" << n << "]: gradient " << gradient[n].to_double() << ", off by " << diff;
    largest = std::max(largest, std::abs(gradient[n].to_double()));
  }
  EXPECT_GT(largest, 1e-3) << name << ": all gradients vanish, nothing was checked";
}

struct Feature {
  std::string name;
  std::string case_text;  // without the type
};

class SlowOracleGradient : public testing::TestWithParam<Feature> {};

TEST_P(SlowOracleGradient, IsTheSlopeOfTheForwardPass) {
  SCOPED_TRACE(GetParam().case_text);
  const Problem problem = parse_case("dtype=f64 " + GetParam().case_text);
  slow::BigInputs in = slow::widen(inputs_of(problem));
  const slow::BigOutputs out = slow::attention(problem, in).value;
  expect_slopes(problem, in, in.q.data, out.dq.data, "dq");
  expect_slopes(problem, in, in.k.data, out.dk.data, "dk");
  expect_slopes(problem, in, in.v.data, out.dv.data, "dv");
  if (problem.d_bias) expect_slopes(problem, in, in.bias.data, out.d_bias.data, "d_bias");
}

const Feature kFeatures[] = {
    {"Plain", "q=3 k=4 dim=3"},
    {"CausalTopLeft", "q=3 k=4 dim=3 causal=top-left"},
    {"CausalWithEmptyRows", "q=5 k=4 dim=3 causal=bottom-right dlse=on"},
    {"Window", "q=3 k=4 dim=3 window=1,0"},
    {"ExplicitMask", "q=3 k=4 dim=3 mask=11qk"},
    {"NegativeScale", "q=3 k=4 dim=3 scale=-1.75"},
    {"Softcap", "q=3 k=4 dim=3 scale=1.5 softcap=0.5"},
    {"Alibi", "q=3 k=4 dim=3 heads=2 alibi=on"},
    {"Dropout", "q=3 k=4 dim=3 dropout=0.4@42+3"},
    {"LseGradient", "q=3 k=4 dim=3 dlse=on"},
    {"GroupedHeads", "q=3 k=4 dim=3 heads=4/2"},
    {"NarrowValues", "q=3 k=4 dim=4/2"},
    {"WideValues", "q=3 k=4 dim=2/5"},
    {"Batch", "q=2,0,1 k=3,2,1 dim=3"},
    {"BiasOfQueriesAndKeys", "q=3 k=4 dim=3 heads=2 bias=11qk dbias=on"},
    {"BiasOfKeys", "q=2,3 k=4,1 dim=3 bias=b11k dbias=on"},
    {"BiasOfHeadsUnderSoftcap", "q=3 k=4 dim=3 heads=2 bias=1hqk dbias=on softcap=1"},
    {"Everything",
     "q=3,2 k=4,5 heads=4/2 dim=3/2 bias=bhqk dbias=on softcap=2 alibi=on causal=bottom-right window=2,-1 "
     "dropout=0.25@7+1 dlse=on"},
};

INSTANTIATE_TEST_SUITE_P(Feature, SlowOracleGradient, testing::ValuesIn(kFeatures),
                         [](const auto& feature) { return feature.param.name; });

}  // namespace
}  // namespace attest

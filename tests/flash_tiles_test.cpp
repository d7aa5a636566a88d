// SPDX-License-Identifier: Apache-2.0
// The flash model under any tile sizes: exact on the seed example, equal to itself in every feature.
#include <gtest/gtest.h>

#include <cmath>

#include "reference/models/flash.h"
#include "reference/models/standard.h"
#include "reference/problem/case_text.h"
#include "tests/support/kernel_call.h"

namespace attest {
namespace {

Inputs seed_example() {
  Inputs inputs;
  inputs.q = Values(5, 1, 3), inputs.k = Values(5, 1, 3), inputs.v = Values(5, 1, 2);
  inputs.q.data = {3, -2, 1, 0.5, 4, -1, -3, 1, 2, 2, 2, -4, 1, -5, 3};
  inputs.k.data = {2, 1, -1, -1, 3, 2, 4, -2, 0, 0, 1, 5, -3, 2, 1};
  inputs.v.data = {1, 0, 0, 2, 3, -1, -2, 4, 5, 1};
  return inputs;
}

/// The definition, on plain arrays.
std::vector<double> softmax_attention(const Inputs& in, bool causal) {
  std::vector<double> o;
  for (std::int64_t i = 0; i < 5; ++i) {
    double l = 0, u[2] = {};
    for (std::int64_t j = 0; j < (causal ? i + 1 : 5); ++j) {
      double s = 0;
      for (std::int64_t c = 0; c < 3; ++c) s += in.q.at(i, 0, c) * in.k.at(j, 0, c) / std::sqrt(3.0);
      l += std::exp(s);
      for (std::int64_t c = 0; c < 2; ++c) u[c] += std::exp(s) * in.v.at(j, 0, c);
    }
    o.insert(o.end(), {u[0] / l, u[1] / l});
  }
  return o;
}

TEST(FlashTiles, GiveTheSeedExampleWhateverTheirSize) {
  for (const bool causal : {false, true}) {
    const Problem problem =
        parse_case(std::string("dtype=f64 q=5 k=5 dim=3/2 direction=forward causal=") + (causal ? "top-left" : "none"));
    const std::vector<double> want = softmax_attention(seed_example(), causal);
    for (const std::int64_t keys : {1, 2, 3, 5})
      for (const std::int64_t queries : {1, 2, 5}) {
        KernelCall call(problem, seed_example());
        ModelOptions options = default_options(call.problem());
        options.query_tile = queries, options.key_tile = keys;
        flash_forward(call.call(), options);
        const Exact got = call.outputs();
        for (std::size_t at = 0; at < want.size(); ++at) EXPECT_NEAR(got.o.data[at], want[at], 1e-12) << keys;
        if (causal) {
          EXPECT_EQ(got.o.at(0, 0, 0), 1.0);
          EXPECT_EQ(got.o.at(0, 0, 1), 0.0);
        }
      }
  }
}

TEST(FlashTiles, DoNotChangeTheResultBeyondRounding) {
  const Problem problem = parse_case(
      "dtype=f64 heads=4/2 dim=8/5 q=20,37 k=70,45 causal=bottom-right window=40,-1 dropout=0.2@7 softcap=3 "
      "bias=11qk:hide=0.1 dbias=on dlse=on");
  const Inputs inputs = make_inputs(problem);
  const auto run = [&](std::int64_t queries, std::int64_t keys) {
    KernelCall call(problem, inputs);
    ModelOptions options = default_options(call.problem());
    options.query_tile = queries, options.key_tile = keys;
    flash_forward(call.call(), options);
    flash_backward(call.call(), options);
    return call.outputs();
  };
  const Exact want = run(64, 128);
  const auto expect_near = [](const std::vector<double>& a, const std::vector<double>& b, const char* name) {
    for (std::size_t at = 0; at < a.size(); ++at)
      if (a[at] != b[at]) {
        EXPECT_NEAR(a[at], b[at], 1e-12) << name;
      }
  };
  for (const auto& [queries, keys] : {std::pair{1, 1}, {3, 7}, {16, 8}, {64, 64}, {5, 100}}) {
    const Exact got = run(queries, keys);
    expect_near(got.o.data, want.o.data, "o");
    expect_near(got.lse, want.lse, "lse");
    expect_near(got.dq.data, want.dq.data, "dq");
    expect_near(got.dk.data, want.dk.data, "dk");
    expect_near(got.dv.data, want.dv.data, "dv");
    expect_near(got.d_bias.data, want.d_bias.data, "dbias");
  }
}

}  // namespace
}  // namespace attest

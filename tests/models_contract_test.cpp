// SPDX-License-Identifier: Apache-2.0
// What the contract says about hidden values, rows without keys, visible NaN, untouched memory and invalid calls, for
// every built-in CPU kernel.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "reference/models/builtin_kernels.h"
#include "reference/problem/case_text.h"
#include "reference/problem/layout.h"
#include "tests/support/kernel_call.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class ModelsContract : public testing::TestWithParam<const attest_kernel*> {};

/// True (and nothing to check) where the kernel says that it does not run such a problem.
bool declines(const attest_kernel& kernel, const Problem& problem) {
  KernelCall call(problem, make_inputs(problem));
  char reason[200] = {};
  return kernel.supports(&call.problem(), reason, sizeof reason) == 0;
}

INSTANTIATE_TEST_SUITE_P(, ModelsContract,
                         testing::ValuesIn(builtin_cpu_kernels().begin(), builtin_cpu_kernels().end()),
                         [](const auto& model) {
                           std::string name = model.param->name;
                           std::erase(name, '-');
                           return name;
                         });

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

bool same_bits(const Exact& a, const Exact& b) {
  return same_bits(a.o.data, b.o.data) && same_bits(a.lse, b.lse) && same_bits(a.dq.data, b.dq.data) &&
         same_bits(a.dk.data, b.dk.data) && same_bits(a.dv.data, b.dv.data) && same_bits(a.d_bias.data, b.d_bias.data);
}

Exact outputs(const attest_kernel& kernel, const Problem& problem, const Inputs& inputs) {
  KernelCall call(problem, inputs);
  EXPECT_EQ(call.run(kernel), ATTEST_OK) << call.message();
  return call.outputs();
}

void poison_key(Inputs& inputs, std::int64_t token, double value) {
  for (std::int64_t h = 0; h < inputs.k.heads; ++h) {
    for (double& x : inputs.k.row(token, h)) x = value;
    for (double& x : inputs.v.row(token, h)) x = value;
  }
}

TEST_P(ModelsContract, HiddenKeysChangeNoBit) {
  // Keys 68 to 79 are hidden from all queries by causality, key 3 by the mask.
  const Problem problem = parse_case("dtype=f16 heads=2/1 dim=8 q=68 k=80 causal=top-left mask=111k:0.5 dropout=0.2@3");
  Inputs inputs = make_inputs(problem);
  for (std::size_t j = 0; j < inputs.mask.data.size(); ++j) inputs.mask.data[j] = j != 3;
  const Exact clean = outputs(*GetParam(), problem, inputs);
  for (const double poison : {kNan, kInfinity, -kInfinity, 60000.0}) {
    Inputs poisoned = inputs;
    for (std::int64_t j : {3, 68, 79}) poison_key(poisoned, j, poison);
    EXPECT_TRUE(same_bits(outputs(*GetParam(), problem, poisoned), clean)) << poison;
  }
  for (std::int64_t j : {3, 68, 79})
    for (std::int64_t c = 0; c < 8; ++c) EXPECT_EQ(clean.dk.at(j, 0, c), 0.0);
}

TEST_P(ModelsContract, AKeyHiddenFromSomeRowsLeavesThemAlone) {
  const Problem problem = parse_case("dtype=bf16 heads=2/1 dim=8 q=70 k=70 causal=top-left");
  const Inputs inputs = make_inputs(problem);
  const Exact clean = outputs(*GetParam(), problem, inputs);
  Inputs poisoned = inputs;
  poison_key(poisoned, 40, kNan);
  const Exact got = outputs(*GetParam(), problem, poisoned);
  for (std::int64_t i = 0; i < 70; ++i)
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t c = 0; c < 8; ++c) {
        if (i < 40) {
          EXPECT_EQ(got.o.at(i, h, c), clean.o.at(i, h, c));
          EXPECT_EQ(got.dq.at(i, h, c), clean.dq.at(i, h, c));
        } else {
          EXPECT_TRUE(std::isnan(got.o.at(i, h, c)));
          EXPECT_TRUE(std::isnan(got.dq.at(i, h, c)));
        }
      }
}

TEST_P(ModelsContract, ANanQueryReachesOnlyTheKeysItSees) {
  const Problem problem = parse_case("dtype=f16 dim=8 q=70 k=70 causal=top-left");
  const Inputs inputs = make_inputs(problem);
  const Exact clean = outputs(*GetParam(), problem, inputs);
  Inputs poisoned = inputs;
  poisoned.q.at(30, 0, 2) = kNan;
  const Exact got = outputs(*GetParam(), problem, poisoned);
  for (std::int64_t j = 0; j < 70; ++j)
    for (std::int64_t c = 0; c < 8; ++c) {
      EXPECT_EQ(std::isnan(got.dk.at(j, 0, c)), j <= 30);
      EXPECT_EQ(std::isnan(got.dv.at(j, 0, c)), j <= 30);
      if (j != 30) {
        EXPECT_EQ(got.o.at(j, 0, c), clean.o.at(j, 0, c));
      }
      if (j > 30) {
        EXPECT_EQ(got.dk.at(j, 0, c), clean.dk.at(j, 0, c));
      }
    }
}

TEST_P(ModelsContract, AnInfiniteScoreMakesItsRowNan) {
  const Problem problem = parse_case("dtype=f32 dim=1 q=2 k=3 direction=forward scale=1");
  if (declines(*GetParam(), problem)) return;
  Inputs inputs = make_inputs(problem);
  inputs.q.data = {1, 0};
  inputs.k.data = {0, kInfinity, 0};
  const Exact got = outputs(*GetParam(), problem, inputs);
  EXPECT_TRUE(std::isnan(got.o.at(0, 0, 0)));
  EXPECT_TRUE(std::isnan(got.lse[0]));
}

TEST_P(ModelsContract, BiasGradientOverNoRowsIsZeroWhereTheBiasBroadcastsOverThem) {
  struct Case {
    const char* text;
    std::size_t elements;
  };
  for (const Case& c :
       {Case{"q=0 k=7 heads=2/1 bias=1h1k dbias=on", 14}, Case{"q=5 k=0 heads=2 bias=bhq1 dbias=on", 10},
        Case{"q=0 k=0 heads=2 bias=1h11 dbias=on", 2}, Case{"layout=thd q=0,0 k=3,2 bias=b11k dbias=on", 6}}) {
    const Problem problem = parse_case(std::string("dtype=f16 dim=4 ") + c.text);
    if (declines(*GetParam(), problem)) continue;
    EXPECT_EQ(outputs(*GetParam(), problem, make_inputs(problem)).d_bias.data, std::vector<double>(c.elements, 0.0))
        << c.text;
  }
}

TEST_P(ModelsContract, RowsWithoutKeysAreZeroWithAnInfiniteLogsumexp) {
  for (const char* text : {"q=5 k=2 causal=bottom-right", "q=5,3 k=0,4", "q=9 k=9 window=0,0 mask=bhqk:0",
                           "q=4 k=3 bias=bhqk:hide=1 dbias=on", "q=70 k=130 block=64x64:random=0"}) {
    const Problem problem = parse_case(std::string("dtype=f16 dim=4 ") + text);
    Inputs inputs = make_inputs(problem);
    for (std::uint8_t& tile : inputs.block_mask.data) tile = 0;
    const Exact got = outputs(*GetParam(), problem, inputs);
    std::int64_t empty = 0;
    for (std::int64_t i = 0; i < problem.total_q(); ++i)
      if (got.lse[static_cast<std::size_t>(i)] == -kInfinity) {
        ++empty;
        for (std::int64_t c = 0; c < 4; ++c) {
          EXPECT_EQ(got.o.at(i, 0, c), 0.0) << text;
          EXPECT_EQ(got.dq.at(i, 0, c), 0.0) << text;
        }
      }
    EXPECT_EQ(empty, std::string(text).starts_with("q=5 ")   ? 3
                     : std::string(text).starts_with("q=5,") ? 5
                                                             : problem.total_q())
        << text;
    for (const double x : got.dk.data) EXPECT_FALSE(std::isnan(x)) << text;
    for (const double x : got.d_bias.data) EXPECT_EQ(x, 0.0) << text;
  }
}

TEST_P(ModelsContract, WritesNothingOutsideTheTokens) {
  for (const char* text : {"q=3,0,5 k=4,2,6 qrows=9 krows=8", "pad=left q=3,0,5 k=4,2,6 qrows=9 krows=8",
                           "layout=thd q=3,0,5 k=4,2,6 qrows=20 krows=15",
                           "layout=bhsd q=3,5 k=4,6 strides.o=1000,70,9 strides.dk=2000,50,900"}) {
    const Problem problem = parse_case(std::string("dtype=f16 heads=2 dim=4 ") + text);
    KernelCall call(problem, make_inputs(problem));
    ASSERT_EQ(call.run(*GetParam()), ATTEST_OK) << call.message();
    for (const TensorId id : {TensorId::o, TensorId::dq, TensorId::dk, TensorId::dv}) {
      std::int64_t written = 0;
      const auto elements = static_cast<std::int64_t>(call.bytes(id).size() / 2);
      for (std::int64_t at = 0; at < elements; ++at)
        written += !std::isnan(load(Dtype::f16, call.bytes(id).data() + 2 * at));
      EXPECT_EQ(written, (is_query_side(id) ? problem.total_q() : problem.total_k()) * 2 * 4) << text << name_of(id);
    }
  }
}

TEST_P(ModelsContract, ASequenceDoesNotDependOnItsNeighbours) {
  const Problem two = parse_case("dtype=f16 layout=thd dim=8 q=7,70 k=9,80 causal=bottom-right");
  const Problem one = parse_case("dtype=f16 layout=thd dim=8 q=70 k=80 causal=bottom-right");
  const Inputs both = make_inputs(two);
  Inputs second = make_inputs(one);
  const auto tail = [](const Values& from, Values& to) {
    to.data.assign(from.data.end() - static_cast<std::ptrdiff_t>(to.data.size()), from.data.end());
  };
  tail(both.q, second.q), tail(both.k, second.k), tail(both.v, second.v), tail(both.d_o, second.d_o);
  const Exact got = outputs(*GetParam(), two, both);
  Exact want = outputs(*GetParam(), one, second);
  EXPECT_TRUE(same_bits({got.o.data.end() - 70 * 8, got.o.data.end()}, want.o.data));
  EXPECT_TRUE(same_bits({got.dk.data.end() - 80 * 8, got.dk.data.end()}, want.dk.data));
}

TEST_P(ModelsContract, RefusesInvalidCallsByNameAndWritesNothing) {
  struct Spoiled {
    const char* reason;
    std::function<void(KernelCall&, std::vector<std::int32_t>&)> spoil;
  };
  const Spoiled spoiled[] = {
      {"cu_q: does not start at 0", [](KernelCall& c, auto& cu) { cu[0] = 1, c.call().cu_q = cu.data(); }},
      {"cu_q: falls at sequence 1", [](KernelCall& c, auto& cu) { cu[2] = 2, c.call().cu_q = cu.data(); }},
      {"cu_q: disagrees with the length of sequence 1",
       [](KernelCall& c, auto& cu) { cu[2] = 9, c.call().cu_q = cu.data(); }},
      {"seq_q: does not fit the tensor", [](KernelCall& c, auto&) { c.problem().rows_q = 7; }},
      {"seq_k: length above the stated maximum in sequence 1", [](KernelCall& c, auto&) { c.problem().max_k = 5; }},
      {"dropout_p: not in [0, 1)",
       [](KernelCall& c, auto&) { c.problem().has_dropout = 1, c.problem().dropout_p = 1; }},
      {"dropout_p: not in [0, 1)",
       [](KernelCall& c, auto&) { c.problem().has_dropout = 1, c.problem().dropout_p = kNan; }},
      {"heads: query heads are not a multiple of key/value heads",
       [](KernelCall& c, auto&) { c.problem().heads_q = 3; }},
      {"scale: not finite", [](KernelCall& c, auto&) { c.problem().scale = kNan; }},
      {"dtype: not a storage type", [](KernelCall& c, auto&) { c.problem().dtype = ATTEST_TF32; }},
  };
  const Problem problem = parse_case("dtype=f32 layout=thd heads=2 dim=4 q=3,5 k=4,6");
  if (declines(*GetParam(), problem)) return;
  for (const Spoiled& one : spoiled)
    for (const bool backward : {false, true}) {
      KernelCall call(problem, make_inputs(problem));
      std::vector<std::int32_t> cu = {0, 3, 8};
      one.spoil(call, cu);
      EXPECT_EQ(backward ? call.backward(*GetParam()) : call.forward(*GetParam()), ATTEST_REFUSED) << one.reason;
      EXPECT_STREQ(call.message(), one.reason);
      for (const TensorId id : {TensorId::o, TensorId::dq, TensorId::dk, TensorId::dv})
        for (std::size_t at = 0; at < call.bytes(id).size(); at += 4)
          ASSERT_TRUE(std::isnan(load(Dtype::f32, call.bytes(id).data() + at))) << one.reason;
    }
}

TEST_P(ModelsContract, TheSameCallGivesTheSameBits) {
  const Problem problem = parse_case("dtype=bf16 heads=4/2 dim=8 q=70 k=80 dropout=0.1@1 bias=11qk dbias=on");
  const Inputs inputs = make_inputs(problem);
  EXPECT_TRUE(same_bits(outputs(*GetParam(), problem, inputs), outputs(*GetParam(), problem, inputs)));
}

}  // namespace
}  // namespace attest

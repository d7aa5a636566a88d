// SPDX-License-Identifier: Apache-2.0
// The built-in CPU kernels against the slow oracle: in f64 to rounding on every feature, in the other types within
// what their declared types allow.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "reference/models/builtin_kernels.h"
#include "reference/problem/case_text.h"
#include "tests/support/kernel_call.h"
#include "tests/support/slow_oracle.h"
#include "tests/support/test_inputs.h"

namespace attest {
namespace {

/// Largest |got - want| / magnitude over finite elements; infinite where the two disagree about being finite.
double distance(const std::vector<double>& got, const std::vector<double>& want, const std::vector<double>& magnitude) {
  EXPECT_EQ(got.size(), want.size());
  double worst = 0;
  for (std::size_t at = 0; at < want.size(); ++at) {
    if (got[at] == want[at] || (std::isnan(got[at]) && std::isnan(want[at]))) continue;
    const double ratio = std::abs(got[at] - want[at]) / magnitude[at];
    worst = ratio >= 0 ? std::max(worst, ratio) : HUGE_VAL;
  }
  return worst;
}

struct Distances {
  double o, lse, dq, dk, dv, d_bias;
  double worst() const { return std::max({o, lse, dq, dk, dv, d_bias}); }
};

Distances distances(const Exact& got, const slow::Result& want) {
  const Exact& size = want.magnitude;
  return {distance(got.o.data, want.value.o.data, size.o.data), distance(got.lse, want.value.lse, size.lse),
          distance(got.dq.data, want.value.dq.data, size.dq.data), distance(got.dk.data, want.value.dk.data, size.dk.data),
          distance(got.dv.data, want.value.dv.data, size.dv.data),
          distance(got.d_bias.data, want.value.d_bias.data, size.d_bias.data)};
}

class Models : public testing::TestWithParam<const attest_kernel*> {};

INSTANTIATE_TEST_SUITE_P(, Models, testing::ValuesIn(builtin_cpu_kernels().begin(), builtin_cpu_kernels().end()),
                         [](const auto& model) {
                           std::string name = model.param->name;
                           std::erase(name, '-');
                           return name;
                         });

const char* const kFeatures[] = {
    "q=5 k=7 dim=3/2",
    "heads=4/2 dim=8 q=70 k=130",
    "heads=3/1 dim=5/9 q=65,0,3 k=64,9,0",
    "layout=bhsd heads=2 dim=16 q=9,33 k=40,17 pad=left",
    "layout=thd heads=4/2 dim=8 q=3,0,66 k=5,2,70 causal=bottom-right",
    "layout=thd heads=2 dim=8 q=5 k=70 qrows=9 krows=80 causal=top-left",
    "dim=8 q=70 k=20 causal=bottom-right",
    "dim=8 q=90 k=100 window=7,3",
    "dim=8 q=90 k=100 causal=bottom-right window=5,-1",
    "heads=4/2 dim=8 q=20 k=70 softcap=0.8",
    "heads=2 dim=8 q=20 k=70 alibi=on",
    "dim=8 q=20 k=70 scale=-0.7",
    "dim=8 q=20 k=70 scale=0",
    "heads=4/2 dim=8 q=20,40 k=70,65 dropout=0.3@11",
    "heads=2 dim=8 q=20 k=70 dlse=on",
    "heads=2 dim=8 q=20,9 k=70,80 bias=bhqk dbias=on",
    "heads=4/2 dim=8 q=20,9 k=70,80 bias=11qk:hide=0.3 dbias=on causal=bottom-right",
    "heads=2 dim=8 q=20,9 k=70,80 bias=1h1k dbias=on softcap=0.7",
    "heads=2 dim=8 q=20,9 k=70,80 bias=b1q1 dbias=on dropout=0.2@5+3",
    "heads=2 dim=8 q=70,9 k=70,80 mask=bhqk:0.5",
    "heads=2 dim=8 q=70,9 k=70,80 mask=111k:0.1",
    "heads=2 dim=8 q=70,9 k=70,180 block=16x32:random=0.5",
    "heads=2 dim=8 q=70,9 k=70,180 block=3x5:local=1 causal=top-left window=20,-1 softcap=1 alibi=on dropout=0.4@9 dlse=on",
    "batch=2 heads=4/2 dim=8 q=12 k=9 strides.q=0,8,96 strides.k=72,8,0 strides.v=0,8,72",
    "batch=2 heads=4/2 dim=8 q=12 k=9 strides.o=1000,70,9 strides.do=1200,8,100 strides.dk=2000,50,900",
};

TEST_P(Models, EqualTheSlowOracleInDoubleOnEveryFeature) {
  for (const char* text : kFeatures) {
    const Problem problem = parse_case(std::string("dtype=f64 ") + text);
    const Inputs inputs = normal_inputs(problem, 7);
    KernelCall call(problem, inputs);
    ASSERT_EQ(call.run(*GetParam()), ATTEST_OK) << text << ": " << call.message();
    const Distances got = distances(call.outputs(), slow::attention(problem, inputs));
    EXPECT_LT(got.worst(), 2e-13) << text << " o " << got.o << " lse " << got.lse << " dq " << got.dq << " dk " << got.dk
                                  << " dv " << got.dv << " dbias " << got.d_bias;
  }
}

}  // namespace
}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// The built-in CPU kernels against the slow oracle: in f64 to rounding on every feature, in the other types within
// what their declared types allow.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "reference/models/builtin_kernels.h"
#include "reference/problem/case_text.h"
#include "tests/support/kernel_call.h"
#include "tests/support/slow_oracle.h"

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
  return {distance(got.o.data, want.value.o.data, size.o.data),
          distance(got.lse, want.value.lse, size.lse),
          distance(got.dq.data, want.value.dq.data, size.dq.data),
          distance(got.dk.data, want.value.dk.data, size.dk.data),
          distance(got.dv.data, want.value.dv.data, size.dv.data),
          distance(got.d_bias.data, want.value.d_bias.data, size.d_bias.data)};
}

/// A case with its inputs and the slow oracle's answer.
struct Asked {
  explicit Asked(const std::string& text)
      : problem(parse_case(text)), inputs(make_inputs(problem)), want(slow::attention(problem, inputs)) {}
  Problem problem;
  Inputs inputs;
  slow::Result want;
};

bool declines(const attest_kernel& kernel, KernelCall& call) {
  char reason[200] = {};
  return kernel.supports(&call.problem(), reason, sizeof reason) == 0;
}

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
    ("heads=2 dim=8 q=70,9 k=70,180 block=3x5:local=1 causal=top-left window=20,-1 softcap=1 alibi=on dropout=0.4@9 "
     "dlse=on"),
    "batch=2 heads=4/2 dim=8 q=12 k=9 strides.q=0,8,96 strides.k=72,8,0 strides.v=0,8,72",
    "batch=2 heads=4/2 dim=8 q=12 k=9 strides.o=1000,70,9 strides.do=1200,8,100 strides.dk=2000,50,900",
};

TEST(Models, EqualTheSlowOracleInDoubleOnEveryFeature) {
  for (const char* text : kFeatures) {
    const Asked one(std::string("dtype=f64 ") + text);
    for (const attest_kernel* kernel : builtin_cpu_kernels()) {
      KernelCall call(one.problem, one.inputs);
      if (declines(*kernel, call)) continue;
      ASSERT_EQ(call.run(*kernel), ATTEST_OK) << kernel->name << " " << text << ": " << call.message();
      const Distances got = distances(call.outputs(), one.want);
      EXPECT_LT(got.worst(), 2e-13) << kernel->name << " " << text << " o " << got.o << " lse " << got.lse << " dq "
                                    << got.dq << " dk " << got.dk << " dv " << got.dv << " dbias " << got.d_bias;
    }
  }
}

/// What roundings to the types of P and of the outputs, and float arithmetic in between, may cost: |got - want| is at
/// most share * magnitude + u_out |want| + half the smallest subnormal of the output type. To first order an element
/// loses u_p for its P or dS, twice for delta's dependence on the stored O, and u_32 times the sums' lengths.
double beyond(const std::vector<double>& got, const std::vector<double>& want, const std::vector<double>& magnitude,
              double share, Dtype out) {
  const DtypeFormat& format = format_of(out);
  double worst = 0;
  for (std::size_t at = 0; at < want.size(); ++at) {
    if (got[at] == want[at]) continue;
    const double bound =
        share * magnitude[at] + format.unit_roundoff() * std::abs(want[at]) + format.min_subnormal() / 2;
    const double ratio = std::abs(got[at] - want[at]) / bound;
    worst = ratio >= 0 ? std::max(worst, ratio) : HUGE_VAL;
  }
  return worst;
}

void expect_within_types(const attest_kernel& kernel, const Asked& one) {
  const Problem& problem = one.problem;
  KernelCall call(problem, one.inputs);
  if (declines(kernel, call)) return;
  const std::string where = std::string(kernel.name) + " " + print_case(problem);
  ASSERT_EQ(call.run(kernel), ATTEST_OK) << where << call.message();
  attest_numerics numerics{};
  kernel.numerics(&call.problem(), &numerics);
  const double u_p = format_of(static_cast<Dtype>(numerics.p_dtype)).unit_roundoff();
  const Dtype out = problem.output_dtype();
  const double arithmetic = 0x1p-20 * (1 + one.want.score_magnitude);
  const double share = u_p + arithmetic, backward = share + 2 * u_p + 2 * format_of(out).unit_roundoff();
  const Exact got = call.outputs();
  const Exact &value = one.want.value, &size = one.want.magnitude;
  EXPECT_LE(beyond(got.o.data, value.o.data, size.o.data, share, out), 1) << where;
  EXPECT_LE(beyond(got.lse, value.lse, size.lse, arithmetic, Dtype::f32), 1) << where;
  EXPECT_LE(beyond(got.dq.data, value.dq.data, size.dq.data, backward, out), 1) << where;
  EXPECT_LE(beyond(got.dk.data, value.dk.data, size.dk.data, backward, out), 1) << where;
  EXPECT_LE(beyond(got.dv.data, value.dv.data, size.dv.data, backward, out), 1) << where;
  EXPECT_LE(beyond(got.d_bias.data, value.d_bias.data, size.d_bias.data, backward, Dtype::f32), 1) << where;
}

TEST(Models, StayWithinTheRoundingOfEveryType) {
  for (const char* type : {"f32", "f16", "bf16", "f8e4m3", "f8e5m2", "f8e4m3 out=bf16", "f16 out=f32"})
    for (const char* text : {"heads=4/2 dim=16 q=20,9 k=70,80 causal=bottom-right", "dim=16 q=3 k=200 dropout=0.2@4",
                             "heads=2 dim=8 q=9 k=70 bias=bhqk:hide=0.2 softcap=2 dbias=on dlse=on"}) {
      const Asked one(std::string("dtype=") + type + " " + text);
      for (const attest_kernel* kernel : builtin_cpu_kernels()) expect_within_types(*kernel, one);
    }
}

// The published defect M15: score * scale and max * scale rounded apart make exp(s - m) of a single key differ from 1.
TEST(Models, GiveTheValueOfASingleKeyWhateverItsScore) {
  const Problem problem = parse_case("dtype=bf16 q=1 k=1 dim=64");
  Inputs inputs = make_inputs(problem);
  for (Values* x : {&inputs.q, &inputs.k, &inputs.v})
    for (double& value : x->data) value = round_to(Dtype::bf16, 1e5 * value);
  for (const attest_kernel* kernel : builtin_cpu_kernels()) {
    KernelCall call(problem, inputs);
    ASSERT_EQ(call.run(*kernel), ATTEST_OK);
    EXPECT_EQ(call.outputs().o.data, inputs.v.data) << kernel->name;
    EXPECT_EQ(call.outputs().dv.data, inputs.d_o.data) << kernel->name;
  }
}

}  // namespace
}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// The exact oracle (Eigen, double) against the slow one (plain loops, 256 bits): every feature alone, every pair of
// features, every input family, non-finite inputs, and random small problems.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "reference/oracle/exact.h"
#include "reference/problem/case_text.h"
#include "reference/problem/inputs.h"
#include "tests/support/agreement.h"
#include "tests/support/slow_oracle.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

void expect_agreement(const Problem& problem, const Inputs& inputs) {
  const std::string found = first_disagreement(exact_attention(problem, inputs), slow::attention(problem, inputs));
  EXPECT_EQ(found, "") << print_case(problem);
}

void expect_agreement(const std::string& text) {
  const Problem problem = parse_case(text);
  expect_agreement(problem, make_inputs(problem));
}

/// One field, or fields that belong together: what every case has of it, and the values worth combining with others.
struct Feature {
  const char* base;
  std::vector<const char*> values;
};

const std::vector<Feature> kFeatures = {
    {"", {"dtype=f64", "dtype=bf16", "dtype=f8e4m3"}},
    {"", {"layout=thd", "layout=bhsd pad=left"}},
    {"q=9 k=11", {"q=12 k=5", "q=1 k=14", "q=4,0,7,3 k=9,6,0,3"}},
    {"heads=2", {"heads=6/2", "heads=3/1"}},
    {"dim=6", {"dim=1", "dim=7/12", "dim=16/3"}},
    {"", {"scale=-0.7", "scale=0", "scale=3"}},
    {"", {"softcap=1.5", "softcap=0.25"}},
    {"", {"bias=bhqk dbias=on", "bias=11qk:hide=0.3 dbias=on", "bias=b11k", "bias=1hq1 dbias=on"}},
    {"", {"alibi=on"}},
    {"", {"causal=top-left", "causal=bottom-right"}},
    {"", {"window=2,1", "window=0,0", "window=-1,3", "window=4,-1"}},
    {"", {"mask=bhqk:0.6", "mask=11qk:0.2", "mask=b11k:0.8"}},
    {"", {"block=4x3:local=1+global=1", "block=2x5:random=0.5"}},
    {"", {"dropout=0.3@9", "dropout=0.9@123456789012345+7"}},
    {"", {"dlse=on"}},
};

/// The base case with one value each for two features (or the same one twice).
std::string case_with(std::size_t first, const char* first_value, std::size_t second, const char* second_value) {
  std::string text;
  for (std::size_t n = 0; n < kFeatures.size(); ++n) {
    text += n == first ? first_value : n == second ? second_value : kFeatures[n].base;
    text += ' ';
  }
  return text;
}

TEST(ExactAgainstSlow, AgreesOnEveryFeatureAlone) {
  for (std::size_t n = 0; n < kFeatures.size(); ++n) {
    for (const char* value : kFeatures[n].values) expect_agreement(case_with(n, value, n, value));
  }
}

TEST(ExactAgainstSlow, AgreesOnEveryPairOfFeatures) {
  int cases = 0;
  for (std::size_t m = 0; m < kFeatures.size(); ++m) {
    for (std::size_t n = m + 1; n < kFeatures.size(); ++n) {
      for (const char* one : kFeatures[m].values) {
        for (const char* other : kFeatures[n].values) {
          expect_agreement(case_with(m, one, n, other));
          ++cases;
        }
      }
    }
  }
  EXPECT_GT(cases, 500);
}

TEST(ExactAgainstSlow, AgreesWithAllFeaturesAtOnce) {
  expect_agreement(
      "dtype=f64 q=13,2,0 k=9,7,4 heads=6/2 dim=5/8 scale=1.3 softcap=2 bias=1hqk:hide=0.1 dbias=on alibi=on "
      "causal=bottom-right window=4,-1 mask=b1qk:0.8 block=3x2:local=2+global=1 dropout=0.2@5+6 dlse=on");
}

TEST(ExactAgainstSlow, AgreesOnEveryInputFamily) {
  for (const Family& each : families()) {
    if (each.kind == FamilyKind::captured || each.kind == FamilyKind::exact) continue;
    for (const char* dtype : {"f64", "f32", "f16", "bf16", "f8e5m2", "f8e4m3"}) {
      for (const char* shape : {"q=9 k=30 dim=8", "q=20 k=9 dim=1 causal=top-left", "q=3 k=5 dim=16/2 heads=2/1"}) {
        expect_agreement(std::string(shape) + " dtype=" + dtype + " fill=" + std::string(each.name) + "@3");
      }
    }
  }
}

TEST(ExactAgainstSlow, AgreesOnExtremeScores) {
  for (const char* fill : {"level:-100000", "level:80", "peaked:100", "rising:200", "falling:500"}) {
    for (const char* dtype : {"f64", "f32", "f16", "bf16"}) {
      expect_agreement(std::string("q=5 k=40 dim=6 heads=2 dlse=on dtype=") + dtype + " fill=" + fill);
    }
  }
}

TEST(ExactAgainstSlow, ForwardAloneGivesNoGradients) {
  const Problem problem = parse_case("q=5 k=6 dim=4 direction=forward");
  const Exact got = exact_attention(problem, make_inputs(problem));
  EXPECT_EQ(first_disagreement(got, slow::attention(problem, make_inputs(problem))), "");
  EXPECT_EQ(got.o.data.size(), 20u);
  EXPECT_TRUE(got.dq.empty() && got.dk.empty() && got.dv.empty() && got.d_bias.empty());
}

/// Crosses tiles and blocks of the exact oracle, whatever their size up to 128.
TEST(ExactAgainstSlow, AgreesAcrossTiles) {
  expect_agreement("q=150 k=300 dim=2 causal=bottom-right window=140,-1");
  expect_agreement("q=200 k=131 dim=1 heads=2/1 softcap=2 dropout=0.4@2 block=17x33:local=1 bias=11qk dbias=on");
}

/// Poison in one element of one operand at a time, seen by some rows and hidden from others. Infinities in v and d_o
/// are left to the forward pass: the contract gives delta in two ways, which are equal for finite values only.
void expect_agreement_when_poisoned(Problem problem, double poison, const char* name,
                                    std::vector<double>& (*operand_of)(Inputs&)) {
  const Inputs clean = make_inputs(problem);
  for (std::size_t quarter = 0; quarter <= 4; ++quarter) {
    Inputs inputs = clean;
    std::vector<double>& operand = operand_of(inputs);
    const std::size_t at = quarter * (operand.size() - 1) / 4;
    operand[at] = poison;
    SCOPED_TRACE(testing::Message() << poison << " in " << name << "[" << at << "]");
    expect_agreement(problem, inputs);
  }
}

TEST(ExactAgainstSlow, AgreesOnNonFiniteInputs) {
  for (const char* text :
       {"q=7 k=8 dim=3 heads=2/1 causal=bottom-right dropout=0.3@1 bias=11qk:hide=0.2 dbias=on dlse=on",
        "q=7 k=8 dim=3 window=1,1 softcap=2 bias=1h1k dlse=on",
        "dtype=f64 q=5,3 k=0,4 dim=2 mask=b1qk:0.4 bias=11qk dlse=on"}) {
    Problem problem = parse_case(text);
    for (const double poison : {kNan, kInfinity, -kInfinity}) {
      expect_agreement_when_poisoned(
          problem, poison, "q", [](Inputs & in) -> auto& { return in.q.data; });
      expect_agreement_when_poisoned(
          problem, poison, "k", [](Inputs & in) -> auto& { return in.k.data; });
      expect_agreement_when_poisoned(
          problem, poison, "bias", [](Inputs & in) -> auto& { return in.bias.data; });
      expect_agreement_when_poisoned(
          problem, poison, "d_lse", [](Inputs & in) -> auto& { return in.d_lse; });
    }
    expect_agreement_when_poisoned(
        problem, kNan, "d_o", [](Inputs & in) -> auto& { return in.d_o.data; });
    expect_agreement_when_poisoned(
        problem, kNan, "v", [](Inputs & in) -> auto& { return in.v.data; });
    problem.direction = Direction::forward;
    problem.d_lse = problem.d_bias = false;
    expect_agreement_when_poisoned(
        problem, kInfinity, "v", [](Inputs & in) -> auto& { return in.v.data; });
  }
}

template <typename T>
T one_of(std::initializer_list<T> values) {
  return *rc::gen::elementOf(std::vector<T>(values));
}
std::int64_t between(std::int64_t low, std::int64_t high) { return *rc::gen::inRange(low, high + 1); }
bool one_in(int n) { return *rc::gen::inRange(0, n) == n - 1; }  // shrinks to false, the feature being off
double real(double low, double high) { return low + (high - low) * *rc::gen::inRange(0, 1001) * 1e-3; }

Broadcast draw_broadcast() { return {one_in(2), one_in(2), one_in(2), one_in(2)}; }

void draw_masks(Problem& problem) {
  if (one_in(2)) problem.causal = one_of({Causal::top_left, Causal::bottom_right});
  if (one_in(3)) problem.window = Window{between(-1, 12), between(-1, 12), Causal::none};
  if (problem.window && problem.causal == Causal::none && one_in(2)) problem.window->alignment = Causal::top_left;
  if (one_in(4)) problem.mask = ExplicitMask{draw_broadcast(), real(0, 1)};
  if (one_in(4)) problem.block = BlockMask{between(1, 9), between(1, 9), between(-1, 2), between(0, 2), real(0, 1)};
}

Problem draw_problem() {
  Problem problem;
  problem.dtype = one_of({Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16, Dtype::f8e4m3, Dtype::f8e5m2});
  problem.seq_q.clear();
  problem.seq_k.clear();
  for (std::int64_t b = between(1, 3); b > 0; --b) {
    problem.seq_q.push_back(between(0, 40));
    problem.seq_k.push_back(between(0, 40));
  }
  problem.heads_kv = between(1, 2);
  problem.heads_q = problem.heads_kv * between(1, 3);
  problem.dim = between(1, 24);
  if (one_in(2)) problem.dim_v = between(1, 24);
  if (one_in(3)) problem.scale = real(-2, 2);
  if (one_in(4)) problem.softcap = real(0.3, 5);
  if (one_in(3)) problem.bias = Bias{draw_broadcast(), std::nullopt, one_in(2) ? real(0, 1) : 0.0};
  problem.alibi = one_in(5);
  draw_masks(problem);
  if (one_in(4)) problem.dropout = Dropout{real(0, 0.99), *rc::gen::arbitrary<std::uint64_t>(), 3};
  problem.direction = one_of({Direction::both, Direction::backward, Direction::forward});
  problem.d_lse = problem.wants_backward() && one_in(2);
  problem.d_bias = problem.wants_backward() && problem.bias && one_in(2);
  const Family each = *rc::gen::elementOf(std::vector<Family>(families().begin(), families().end()));
  if (each.kind != FamilyKind::captured && each.kind != FamilyKind::exact && one_in(2)) problem.fill.family = each.name;
  problem.fill.seed = between(0, 1000);
  return problem;
}

RC_GTEST_PROP(ExactAgainstSlow, AgreesOnRandomProblems, ()) {
  const Problem problem = draw_problem();
  validate(problem);
  RC_LOG() << print_case(problem) << std::endl;
  const Inputs inputs = make_inputs(problem);
  const std::string found = first_disagreement(exact_attention(problem, inputs), slow::attention(problem, inputs));
  if (!found.empty()) RC_FAIL(found);
}

}  // namespace
}  // namespace attest

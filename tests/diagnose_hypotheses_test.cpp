// SPDX-License-Identifier: Apache-2.0
// Every mistake that the diagnosis knows is made by other code (tests/support/faulty_attention.h), and must be named.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "reference/problem/case_text.h"
#include "tests/support/diagnosis_study.h"

namespace attest {
namespace {

using testing_support::all_causes;
using testing_support::diagnose_fault;
using testing_support::Fault;
using testing_support::faults_for;

/// Problems that between them have room for every mistake.
const char* const kCases[] = {
    "heads=4/2 dim=16 q=33,20 k=49,41 causal=bottom-right qrows=36 krows=52",
    "layout=thd heads=4/2 dim=16/8 q=30,22 k=40,35 causal=top-left dlse=on scale=0.3",
    "layout=bhsd heads=2 dim=16 batch=2 q=40 k=40 causal=top-left",
    "heads=2 dim=16 batch=2 q=40 k=40",
    "heads=4/2 dim=16 q=40 k=48 window=5,2,top-left softcap=1.5 dropout=0.2@9",
    "heads=2 dim=16 q=40,30 k=44,44 bias=bhqk alibi=on mask=11qk:0.5",
    "heads=2 dim=16 q=40,30 k=44,44 bias=11qk dbias=on softcap=2",
    "heads=2 dim=16 q=40 k=48 block=16x16:random=0.6 window=6,3",
    "heads=1 dim=16 q=40 k=20 causal=bottom-right",
};

std::string as_test_name(std::string name) {
  std::string out;
  for (const char c : name) out += std::isalnum(static_cast<unsigned char>(c)) != 0 ? std::string(1, c) : c == '+' ? "Plus" : c == '-' ? "_" : "Over";
  return out;
}

class DiagnosisOfFault : public testing::TestWithParam<std::string> {};

TEST_P(DiagnosisOfFault, IsNamedAloneAndAfterRoundingToF16) {
  std::map<std::string, int> tried;
  for (const char* text : kCases) {
    for (const char* type : {"dtype=f32 ", "dtype=f16 "}) {
      if (tried[type] > 0) continue;
      const Problem problem = parse_case(std::string(type) + text);
      const std::vector<Fault> faults = faults_for(problem);
      const auto fault = std::find_if(faults.begin(), faults.end(), [&](const Fault& f) { return f.cause == GetParam(); });
      if (fault == faults.end()) continue;
      const diagnose::Explanation found = diagnose_fault(problem, *fault);
      if (found.as_contracted()) continue;  // this problem does not show it
      ++tried[type];
      const auto& best = found.ranking.at(0);
      EXPECT_EQ(testing_support::first_name(found, fault->cause), fault->cause)
          << type << text << ": best " << found.name_of(best) << ", misfit " << best.fit.misfit() << " of " << found.contract.misfit();
    }
  }
  for (const auto& [type, times] : tried) EXPECT_EQ(times, 1) << "no problem of the list shows this mistake with " << type;
}

INSTANTIATE_TEST_SUITE_P(All, DiagnosisOfFault, testing::ValuesIn(all_causes()), [](const auto& cause) { return as_test_name(cause.param); });

TEST(Diagnosis, HasNoHypothesisWithoutATestOfIt) {
  const std::vector<std::string> tested = all_causes();
  for (const char* text : kCases) {
    const Problem problem = parse_case(text);
    const Inputs inputs = make_inputs(problem);
    const Exact got = testing_support::faulty_attention(problem, inputs, testing_support::store(problem, inputs, 3), Fault{});
    const diagnose::Evidence evidence = diagnose::evidence_of(problem, inputs, {&got.o, &got.lse, &got.dq, &got.dk, &got.dv, &got.d_bias}, make_profile(numerics_preset("f32-simt"), problem));
    for (const diagnose::Hypothesis& hypothesis : diagnose::hypotheses_for(evidence)) {
      EXPECT_NE(std::find(tested.begin(), tested.end(), hypothesis.name), tested.end()) << hypothesis.name;
    }
  }
}

TEST(Diagnosis, TakesEitherPaddingForTheOther) {
  for (const char* pad : {"left", "right"}) {
    const Problem problem = parse_case(std::string("heads=2 dim=16 q=33,20 k=49,41 causal=bottom-right qrows=36 krows=52 pad=") + pad);
    const diagnose::Explanation found = diagnose_fault(problem, Fault{"padding-side", 0, 0, testing_support::Where::both});
    EXPECT_EQ(testing_support::first_name(found, "padding-side"), "padding-side") << pad;
  }
}

// The long form is attest_diagnosis_study; its table is in docs/diagnosis.md.
TEST(Diagnosis, NamesTheTrueCauseOfRandomCases) {
  constexpr std::uint64_t kSeed = 2;
  int judged = 0, named = 0;
  for (std::uint64_t index = 0; judged < 40; ++index) {
    const Problem problem = testing_support::random_problem(kSeed, index);
    const Fault fault = testing_support::random_fault(problem, kSeed, index);
    const diagnose::Explanation found = diagnose_fault(problem, fault);
    if (found.as_contracted()) continue;
    ++judged;
    named += testing_support::first_name(found, fault.cause) == fault.cause;
  }
  EXPECT_GE(named, 38);  // 95 of 100
}

TEST(Diagnosis, DoesNotAccuseACorrectResult) {
  for (const char* text : kCases) {
    for (const char* type : {"dtype=f32 ", "dtype=f16 ", "dtype=bf16 "}) {
      const diagnose::Explanation found = diagnose_fault(parse_case(std::string(type) + text), Fault{});
      EXPECT_TRUE(found.as_contracted()) << type << text;
      EXPECT_TRUE(found.causes().empty()) << type << text;
    }
  }
}

TEST(Diagnosis, NamesTwoMistakesTogether) {
  // The scale's mistake in a problem whose causal mask is another one: relative to the second problem, two changes.
  const Problem asked = parse_case("heads=2 dim=16 q=33 k=49 causal=bottom-right direction=forward");
  Problem made = asked;
  made.causal = Causal::top_left;
  const Inputs inputs = make_inputs(asked);
  Exact got = testing_support::faulty_attention(made, inputs, testing_support::store(made, inputs, 3), Fault{"lse-base-2", 0, 0, testing_support::Where::both});
  const diagnose::Explanation found = diagnose::explain(diagnose::evidence_of(
      asked, inputs, {&got.o, &got.lse, nullptr, nullptr, nullptr}, make_profile(numerics_preset("f32-simt"), asked)));
  ASSERT_FALSE(found.causes().empty());
  EXPECT_EQ(found.name_of(found.causes().front()), "causal-top-left + lse-base-2");
  EXPECT_TRUE(found.pairs_tried);
}

TEST(Diagnosis, SaysSoWhereNothingExplains) {
  const Problem problem = parse_case("heads=2 dim=16 q=33 k=49 direction=forward");
  const Inputs inputs = make_inputs(problem);
  Exact got = testing_support::faulty_attention(problem, inputs, testing_support::store(problem, inputs, 3), Fault{});
  for (std::size_t n = 0; n < got.o.data.size(); ++n) got.o.data[n] += n % 3 == 0 ? 0.3 : -0.2;
  const diagnose::Explanation found = diagnose::explain(diagnose::evidence_of(
      problem, inputs, {&got.o, &got.lse, nullptr, nullptr, nullptr}, make_profile(numerics_preset("f32-simt"), problem)));
  EXPECT_FALSE(found.as_contracted());
  EXPECT_TRUE(found.causes().empty());
}

}  // namespace
}  // namespace attest

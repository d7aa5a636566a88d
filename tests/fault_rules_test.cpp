// SPDX-License-Identifier: Apache-2.0
// Which acceptance rule sees which planted fault: the computed bound against the usual tolerances, on the cases of the table
// in docs/numerics.md; and the exact families, which see every fault of structure bit for bit.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reference/oracle/closed_form.h"
#include "reference/problem/case_text.h"
#include "reference/verify/exact_cases.h"
#include "tests/support/fault_study.h"

namespace attest::tiled_faults {
namespace {

const FaultStudy& study(const std::string& text) {
  static std::map<std::string, FaultStudy> studies;
  return studies.try_emplace(text, text).first->second;
}

RuleVerdicts on_its_case(Fault fault, const char* dtype) { return study(case_for(fault, dtype)).judge(fault); }

constexpr Fault kSubtle[] = {Fault::scale_off,        Fault::window_one_more, Fault::window_one_less, Fault::l_in_f16,
                             Fault::exp_in_bf16,      Fault::one_padding_key};

TEST(FaultRules, TheBoundSeesWhatTolerancesMiss) {
  for (const Fault fault : kSubtle) {
    SCOPED_TRACE(static_cast<int>(fault));
    for (const char* dtype : {"f16", "bf16"}) {
      const RuleVerdicts verdicts = on_its_case(fault, dtype);
      EXPECT_TRUE(verdicts.bound) << dtype;
      EXPECT_FALSE(verdicts.loose) << dtype;
      EXPECT_FALSE(verdicts.nmse) << dtype;
    }
    EXPECT_FALSE(on_its_case(fault, "bf16").flash);
  }
}

TEST(FaultRules, TheBoundAcceptsTheCorrectKernelAndTorchsDefaultDoesNot) {
  int rejected = 0;
  for (const char* family : {"normal", "positive", "peaked", "needle", "cancel", "outliers", "rising"}) {
    const RuleVerdicts verdicts = study("dtype=f16 q=64 k=256 heads=2/1 fill=" + std::string(family) + "@1").judge(Fault::none);
    EXPECT_FALSE(verdicts.bound) << family << " " << verdicts.score << " " << verdicts.tensor;
    rejected += verdicts.torch;
  }
  EXPECT_GE(rejected, 6);
}

TEST(FaultRules, WhatNormalInputsHideAnotherFamilyOfTheMixShows) {
  const auto seen = [](Fault fault, const std::string& text) { return study(text).judge(fault).bound; };
  EXPECT_FALSE(on_its_case(Fault::no_maximum, "f16").bound);
  EXPECT_TRUE(seen(Fault::no_maximum, "dtype=f16 q=64 k=256 fill=level:120@1"));
  EXPECT_FALSE(on_its_case(Fault::output_truncated, "f16").bound);
  EXPECT_TRUE(seen(Fault::output_truncated, "dtype=f16 q=64 k=256 fill=positive@1"));
  EXPECT_FALSE(on_its_case(Fault::delta_in_input_type, "bf16").bound);
  EXPECT_TRUE(seen(Fault::delta_in_input_type, "dtype=bf16 q=64 k=256 dim=64 fill=positive@1"));
  EXPECT_TRUE(seen(Fault::o_in_input_type, "dtype=bf16 q=64 k=1024 dim=64 fill=positive@1"));
}

TEST(FaultRules, TheBoundSeesAllButFourOnNormalInputs) {
  for (const char* dtype : {"f16", "bf16"}) {
    std::size_t bound = 0, loose = 0, flash = 0, nmse = 0;
    for (const FaultName& fault : faults()) {
      const RuleVerdicts verdicts = on_its_case(fault.fault, dtype);
      bound += verdicts.bound;
      loose += verdicts.loose;
      flash += verdicts.flash;
      nmse += verdicts.nmse;
    }
    EXPECT_GE(bound + 4, faults().size());
    EXPECT_GE(bound, loose + 6);
    EXPECT_GE(bound, flash + 3);
    EXPECT_GE(bound, nmse + 5);
  }
}

/// The exact families that tell `got` from the closed form: by a bit of o or a gradient, or by LSE beyond its bound.
class ExactSet {
 public:
  explicit ExactSet(const std::string& dtype) {
    for (const Family& known : families()) {
      if (known.kind != FamilyKind::exact) continue;
      for (const char* text : {" q=96 k=256 heads=4/2 causal=bottom-right fill=normal@1",
                               " q=70 k=256 heads=4/2 bias=1hqk causal=top-left window=20,-1 fill=normal@2"}) {
        cases_.emplace_back(with_exact_family(parse_case("dtype=" + dtype + text), known.name));
      }
    }
  }

  /// The first family that sees it; empty where none does.
  std::string seen_by(Fault fault) const {
    for (const Case& one : cases_) {
      if (one.differs(faulty_attention(one.problem, one.inputs, fault))) return one.problem.fill.family;
    }
    return "";
  }

 private:
  struct Case {
    Problem problem;
    Inputs inputs;
    ClosedForm form;

    explicit Case(Problem made) : problem(std::move(made)), inputs(make_inputs(problem)), form(closed_form(problem, inputs)) {}

    static bool bits_differ(const ClosedTensor& want, const Values& got) {
      for (std::size_t n = 0; n < want.exact.size(); ++n) {
        if (want.exact[n] != 0 && !(got.data[n] == want.value.data[n])) return true;
      }
      return false;
    }

    bool differs(const Exact& got) const {
      for (std::size_t n = 0; n < form.lse.size(); ++n) {
        if (std::isnan(form.lse[n]) || got.lse[n] == form.lse[n]) continue;
        // Roundings of log and of the sum (docs/numerics.md): 2^-21.4 + 4 u |LSE|.
        if (!(std::abs(got.lse[n] - form.lse[n]) <= std::exp2(-21.4) + 0x1p-22 * std::abs(form.lse[n]))) return true;
      }
      return bits_differ(form.o, got.o) || bits_differ(form.dq, got.dq) || bits_differ(form.dk, got.dk) ||
             bits_differ(form.dv, got.dv);
    }
  };
  std::vector<Case> cases_;
};

TEST(ExactFaults, EveryFaultOfStructureIsSeenByAFamily) {
  const ExactSet families("f16");
  EXPECT_EQ(families.seen_by(Fault::none), "");
  int structural = 0;
  for (const FaultName& fault : faults()) {
    if (!fault.structural) continue;
    ++structural;
    EXPECT_NE(families.seen_by(fault.fault), "") << fault.name;
  }
  EXPECT_EQ(structural, 25);
}

}  // namespace
}  // namespace attest::tiled_faults

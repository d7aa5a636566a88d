// SPDX-License-Identifier: Apache-2.0
// Every check fails on a fault that it is for, and on nothing sound.
#include "reference/verify/checks/check_unit.h"

#include <array>
#include <limits>
#include <memory>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "reference/problem/case_text.h"
#include "reference/problem/invalid_request.h"
#include "reference/verify/report.h"
#include "tests/support/check_faults.h"
#include "tests/support/faulty_kernels.h"

namespace attest {
namespace {

Verdict check_with(const attest_kernel* table, const std::string& text, const std::string& checks) {
  const auto memory = make_host_memory();
  CheckOptions options;
  options.units = select_checks(checks);
  return check(Kernel(table), parse_case(text), *memory, options);
}

const CheckRecord& record(const Verdict& verdict, const std::string& check) {
  for (const CheckRecord& candidate : verdict.checks) {
    if (candidate.check == check) return candidate;
  }
  throw std::logic_error("no record of " + check);
}

struct Fault {
  const char* kernel;
  const char* check;
  const char* text;  // several seeds of it are tried: a check chooses its variant by the text
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.kernel; }

class CheckUnits : public testing::TestWithParam<Fault> {};

TEST_P(CheckUnits, FindTheFaultThatTheyAreFor) {
  const Fault& fault = GetParam();
  int found = 0;
  for (int seed = 0; seed < 16; ++seed) {
    const std::string text = fault.text + std::to_string(seed);
    const Verdict sound = check_with(testing_support::check_fault("sound"), text, fault.check);
    EXPECT_EQ(sound.state, State::pass) << describe(sound);
    EXPECT_EQ(check_with(testing_support::check_fault(fault.kernel), text, "none").state, State::pass) << text;
    const Verdict verdict = check_with(testing_support::check_fault(fault.kernel), text, fault.check);
    if (verdict.state != State::fail) continue;
    ++found;
    ASSERT_FALSE(verdict.findings.empty());
    EXPECT_EQ(verdict.findings[0].check, fault.check);
    EXPECT_EQ(record(verdict, fault.check).outcome, Outcome::fail);
  }
  EXPECT_GT(found, 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, CheckUnits,
    testing::Values(Fault{"reads-hidden-key", "hidden", "q=3 k=5 dim=4 causal=top-left fill=normal@"},
                    Fault{"leaks-late-key", "prefix", "q=4 k=4 dim=4 causal=top-left fill=normal@"},
                    Fault{"drops-nan", "nan-key", "q=3 k=4 dim=4 fill=normal@"}, Fault{"drifts", "rerun", "q=3 k=4 dim=4 fill=normal@"},
                    Fault{"keeps-old-constants", "history", "q=4 k=6 dim=7 fill=normal@"},
                    Fault{"reads-neighbour", "neighbours", "batch=3 q=3 k=4 dim=4 fill=normal@"},
                    Fault{"strides-of-o", "layouts", "batch=2 q=3 k=4 heads=2 dim=4 fill=normal@"},
                    Fault{"adds-to-dq", "zero-do", "q=3 k=4 dim=4 fill=normal@"},
                    Fault{"refuses-nothing", "refusals", "layout=thd heads=4/2 q=3,2 k=4,6 dim=4 fill=normal@"},
                    Fault{"wrong-when-alone", "alone", "q=3,2 k=4,6 dim=4 fill=normal@"},
                    Fault{"first-is-shortest", "reordered", "q=3,4 k=4,6 dim=4 fill=normal@"},
                    Fault{"no-right-window", "same-mask", "q=5 k=6 dim=4 causal=top-left fill=normal@"},
                    Fault{"zero-lse-of-empty", "empty", "q=5 k=6 dim=4 fill=normal@"},
                    Fault{"saturates", "linear", "q=3 k=1 dim=4 scale=4 fill=normal@"},
                    Fault{"expects-rising-keys", "key-order", "q=3 k=40 dim=4 fill=rising@"},
                    Fault{"short-lse-in-base2", "split", "q=3 k=10 dim=4 fill=normal@"},
                    Fault{"maximum-from-30", "shift", "q=3 k=10 dim=4 fill=normal@"},
                    Fault{"no-constant-v", "sums", "q=3 k=10 dim=4 fill=normal@"},
                    Fault{"last-key-of-dbias", "sums", "q=3 k=10 dim=4 fill=normal@"},
                    Fault{"forgets-small-steps", "derivative", "q=1 k=10 dim=4 fill=normal@"},
                    Fault{"skips-zero-v", "additive", "q=3 k=10 dim=4 fill=normal@"},
                    Fault{"skips-zero-do", "additive", "q=3 k=10 dim=4 fill=normal@"}),
    [](const auto& tested) {
      std::string name = tested.param.kernel;
      for (char& c : name) c = c == '-' ? '_' : c;
      return name;
    });

TEST(CheckUnits, OfMemoryReportWhatTheFirstRunShowed) {
  const auto outcome = [](const char* kernel, const char* text, const char* check) {
    return record(check_with(testing_support::faulty_kernel(kernel), text, check), check).outcome;
  };
  EXPECT_EQ(outcome("writes-nothing", "direction=forward q=2 k=3", "written"), Outcome::fail);
  EXPECT_EQ(outcome("writes-before", "direction=forward q=2 k=3", "guards"), Outcome::fail);
  EXPECT_EQ(outcome("writes-gap", "direction=forward q=2 k=3 dim=8 heads=2 strides.o=48,24,12", "guards"), Outcome::fail);
  EXPECT_EQ(outcome("changes-input", "direction=forward q=2 k=3", "inputs"), Outcome::fail);
  EXPECT_EQ(outcome("changes-input", "direction=forward q=2 k=3", "guards"), Outcome::pass);
}

TEST(CheckUnits, HaveNamesOfTheirOwnAndSayWhatTheyAreFor) {
  std::set<std::string> names;
  for (const CheckUnit* unit : check_units()) {
    EXPECT_TRUE(names.insert(unit->name).second) << unit->name;
    EXPECT_NE(std::string(unit->bugs).find('K'), std::string::npos) << unit->name;
  }
  EXPECT_EQ(select_checks("all").size(), names.size());
  EXPECT_EQ(select_checks("rerun,prefix").size(), 2u);
  EXPECT_TRUE(select_checks("none").empty());
  EXPECT_THROW(select_checks("rerun,"), InvalidRequest);
  EXPECT_THROW(select_checks("everything"), InvalidRequest);
}

/// What a check says where the kernel's first answer is changed behind its back.
class ChangedAnswer {
 public:
  ChangedAnswer(const std::string& text, const std::string& check)
      : prepared_(prepare(kernel_, parse_case(text))), unit_(*select_checks(check)[0]),
        base_(run_kernel(kernel_, prepared_.problem, prepared_.inputs, prepared_.truth.exact, *memory_)), first_(base_.outputs) {}

  Outputs& outputs() { return base_.outputs; }
  void restore() { base_.outputs = first_; }
  CheckResult result(std::uint64_t seed = 1) { return unit_.run(CheckContext(kernel_, prepared_, base_, *memory_, seed)); }

 private:
  std::unique_ptr<DeviceMemory> memory_ = make_host_memory();
  Kernel kernel_{testing_support::check_fault("sound")};
  PreparedCase prepared_;
  const CheckUnit& unit_;
  KernelRun base_;
  Outputs first_;
};

TEST(CheckUnits, AddUpTheColumnsOfDv) {
  ChangedAnswer answer("q=3 k=10 heads=4/2 dim=4 fill=normal@3", "sums");
  EXPECT_TRUE(answer.result().findings.empty());
  answer.outputs().dv.at(7, 1, 2) += 1e-3;
  const CheckResult result = answer.result();
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_NE(result.findings[0].message.find("column 2 of dv of [b=0 h=1] adds up to"), std::string::npos) << result.findings[0].message;
  answer.outputs().dv.at(7, 1, 2) = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(answer.result().findings.size(), 1u);
}

void scale(Values& values, double factor) {
  for (double& x : values.data) x *= factor;
}

/// The gradients times `factor` must be found by steps of all three tensors.
void expect_derivative_finds(const char* text, double factor) {
  ChangedAnswer answer(text, "derivative");
  std::set<std::string> found;
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    answer.restore();
    const CheckResult sound = answer.result(seed);
    EXPECT_EQ(sound.outcome, Outcome::pass) << text << ": " << sound.reason;
    EXPECT_TRUE(sound.findings.empty()) << text << ": " << sound.findings[0].message;
    for (Values* gradient : {&answer.outputs().dq, &answer.outputs().dk, &answer.outputs().dv}) scale(*gradient, factor);
    for (const Finding& finding : answer.result(seed).findings) found.insert(finding.tensor);
  }
  EXPECT_EQ(found, (std::set<std::string>{"dq", "dk", "dv"})) << text << " times " << factor;
}

TEST(CheckUnits, SeeByTheForwardThatGradientsAreOff) {
  expect_derivative_finds("q=9 k=21 heads=2 dim=16 causal=bottom-right fill=normal@5", 1.01);
  expect_derivative_finds("q=9 k=21 heads=2 dim=16 dropout=0.2@7 dlse=on fill=normal@5", -1);
  expect_derivative_finds("dtype=f64 q=9 k=21 heads=2 dim=16 alibi=on fill=normal@5", 1.0001);
  expect_derivative_finds("dtype=f16 q=9 k=21 heads=2 dim=16 fill=normal@5", 1.25);
  expect_derivative_finds("dtype=bf16 q=3 k=7 heads=2 dim=16 fill=normal@5", 0);
  expect_derivative_finds("q=9 k=21 heads=2 dim=16 fill=normal@5", std::numeric_limits<double>::quiet_NaN());
}

TEST(CheckUnits, DoNotApplyWhereTheBoundsHideEveryDifference) {
  // One key: o does not depend on q and k, and no step in them changes it.
  ChangedAnswer answer("dtype=f16 q=4 k=1 dim=8 fill=normal@1", "derivative");
  int not_applicable = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) not_applicable += answer.result(seed).outcome == Outcome::not_applicable;
  EXPECT_GT(not_applicable, 0);
}

TEST(CheckUnits, MergePartsOfWhichOneSeesNothing) {
  for (const char* text : {"q=7 k=7 dim=4 causal=top-left fill=normal@1", "q=9 k=5 dim=4 causal=bottom-right fill=normal@2",
                           "layout=thd q=3,4,2 k=9,0,1 dim=8 heads=4/2 window=2,1 fill=normal@3", "dtype=bf16 batch=2 q=5 k=40 dim=16 bias=11qk mask=11qk:0.3 fill=normal@4"}) {
    const Verdict verdict = check_with(testing_support::check_fault("sound"), text, "split");
    EXPECT_EQ(verdict.state, State::pass) << describe(verdict);
    EXPECT_EQ(record(verdict, "split").outcome, Outcome::pass) << record(verdict, "split").reason;
  }
}

Verdict check_own_case(const char* fault, const char* check) {
  const Kernel kernel(testing_support::check_fault(fault));
  const std::optional<Problem> problem = own_case(*select_checks(check)[0], kernel, std::nullopt);
  return check_with(&kernel.table(), print_case(problem.value()), check);
}

TEST(CheckUnits, WithACaseOfTheirOwnFindTheFaultThatTheyAreFor) {
  for (const auto& [fault, check, says] : {std::array{"grid-of-16-bits", "grid-limits", "65537 sequences of 1 heads: "},
                                           std::array{"heads-of-16-bits", "grid-limits", "1 sequences of 65537 heads: "},
                                           std::array{"short-strides-of-k", "large-offsets", "elements between the sequences of k"},
                                           std::array{"short-strides-of-dv", "large-offsets", "elements between the sequences of dv"}}) {
    const Verdict sound = check_own_case("sound", check);
    EXPECT_EQ(sound.state, State::pass) << describe(sound);
    EXPECT_EQ(record(sound, check).outcome, Outcome::pass) << record(sound, check).reason;
    const Verdict verdict = check_own_case(fault, check);
    EXPECT_EQ(record(verdict, check).outcome, Outcome::fail) << fault;
    ASSERT_FALSE(verdict.findings.empty()) << fault;
    EXPECT_NE(verdict.findings[0].message.find(says), std::string::npos) << verdict.findings[0].message;
  }
}

TEST(CheckUnits, WithACaseOfTheirOwnRunOnNoOther) {
  const Verdict other = check_with(testing_support::check_fault("grid-of-16-bits"), "q=1 k=2 dim=8 fill=normal@24", "all");
  for (const CheckRecord& said : other.checks) EXPECT_NE(said.check, "grid-limits");
  EXPECT_EQ(other.checks.size() + 2, check_units().size());
}

TEST(CheckUnits, CountWhatDoesNotApplyAsNeitherPassNorFail) {
  const Verdict verdict = check_with(testing_support::check_fault("sound"), "direction=forward q=2 k=3", "zero-do");
  EXPECT_EQ(verdict.state, State::pass);
  EXPECT_EQ(record(verdict, "zero-do").outcome, Outcome::not_applicable);
  EXPECT_EQ(record(verdict, "zero-do").reason, "forward only");
}

TEST(CheckUnits, DoNotRepeatThatValuesAreOff) {
  const Verdict verdict = check_with(testing_support::faulty_kernel("scale-off"), "q=8 k=9 heads=2 direction=forward", "layouts,reordered");
  EXPECT_EQ(verdict.state, State::fail);
  EXPECT_TRUE(verdict.findings.empty()) << describe(verdict);
  EXPECT_EQ(record(verdict, "reordered").outcome, Outcome::not_applicable);
  EXPECT_EQ(record(verdict, "reordered").reason, "the case's own values are off already");
}

TEST(CheckUnits, KeepToTheWorkThatTheyMaySpend) {
  const auto memory = make_host_memory();
  CheckOptions options;
  options.units = select_checks("all");
  options.work_per_case = 1;
  const Kernel kernel(testing_support::check_fault("sound"));
  const std::size_t few = check(kernel, parse_case("q=64 k=64"), *memory, options).checks.size();
  options.work_per_case = 0;
  const std::size_t all = check(kernel, parse_case("q=64 k=64"), *memory, options).checks.size();
  EXPECT_LT(few, all);
  EXPECT_EQ(all + 2, check_units().size()) << "two have cases of their own";
}

}  // namespace
}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// Every check fails on a fault that it is for, and on nothing sound.
#include "reference/verify/checks/check_unit.h"

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
                    Fault{"expects-rising-keys", "key-order", "q=3 k=40 dim=4 fill=rising@"}),
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
  EXPECT_EQ(all, check_units().size());
}

}  // namespace
}  // namespace attest

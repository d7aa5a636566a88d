// SPDX-License-Identifier: Apache-2.0
// What `--profile` says is the sum of what its cases say; and the oracle, which costs most, runs once for a case. Checks that
// need the exact answer of other problems than the case, for their bounds, are named here.
#include "reference/verify/profile.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "reference/oracle/exact.h"
#include "reference/problem/case_text.h"
#include "reference/verify/check.h"
#include "reference/verify/checks/check_unit.h"
#include "tests/support/check_faults.h"

namespace attest {
namespace {

Verdict verdict_of(State state, double oracle, double rerun) {
  Verdict verdict;
  verdict.state = state;
  verdict.cost[Phase::oracle] = {oracle, oracle / 2};
  verdict.cost[Phase::checks] = {rerun, rerun};
  verdict.checks = {{"rerun", Outcome::pass, "", {rerun, rerun}}};
  return verdict;
}

TEST(Profile, AddsUpCasesPhasesAndChecks) {
  Profile profile("mine");
  profile.add(verdict_of(State::pass, 0.25, 0.5));
  profile.add(verdict_of(State::fail, 0.75, 0.5));
  profile.add(verdict_of(State::unsupported, 8, 8));
  profile.finish(4, 6, {.calls = 10, .seconds = 3, .kernel_seconds = 2});
  const nlohmann::json json = nlohmann::json::parse(profile.json());
  EXPECT_EQ(json["kernel"], "mine");
  EXPECT_EQ(json["cases"], 2);
  EXPECT_EQ(json["phases"]["oracle"]["seconds"], 1.0);
  EXPECT_EQ(json["phases"]["oracle"]["cpu"], 0.5);
  EXPECT_EQ(json["phases"]["bounds"]["seconds"], 0.0);
  EXPECT_EQ(json["checks"]["rerun"]["seconds"], 1.0);
  EXPECT_EQ(json["checks"]["rerun"]["cases"], 2);
  EXPECT_EQ(json["kernel_seconds"], 2.0);
  EXPECT_EQ(json["transport_seconds"], 1.0);
  const std::string table = profile.table();
  EXPECT_NE(table.find("mine: 2 cases in 4.0 s, 0.5 a second; 3000.0 ms of processor time a case"), std::string::npos) << table;
  EXPECT_NE(table.find("oracle                 500.000   250.000   50.0%         2"), std::string::npos) << table;
  EXPECT_NE(table.find("in the kernel 1000.000 ms a case, to and from its process 500.000 ms in 5 messages"), std::string::npos) << table;
}

TEST(Profile, OfNoCaseDividesByNothing) {
  Profile profile("none");
  profile.finish(0, 0, {});
  EXPECT_NE(profile.table().find("none: 0 cases"), std::string::npos);
  EXPECT_EQ(profile.table().find("nan"), std::string::npos);
}

TEST(Profile, APhaseThatRanHasATime) {
  const auto memory = make_host_memory();
  CheckOptions options;
  options.units = select_checks("rerun,linear");
  const Verdict verdict = check(Kernel(testing_support::check_fault("sound")), parse_case("q=9 k=9"), *memory, options);
  for (const Phase phase : {Phase::inputs, Phase::oracle, Phase::bounds, Phase::run, Phase::judge, Phase::checks}) {
    EXPECT_GT(verdict.cost[phase].seconds, 0) << name_of(phase);
  }
  EXPECT_EQ(verdict.cost[Phase::generate].seconds, 0);
  ASSERT_EQ(verdict.checks.size(), 2u);
  EXPECT_DOUBLE_EQ(verdict.cost[Phase::checks].seconds, verdict.checks[0].cost.seconds + verdict.checks[1].cost.seconds);
}

/// Evaluations of the oracle beside the one that the case needs.
std::int64_t further_evaluations(const std::string& check) {
  return check == "split" || check == "derivative" || check == "additive" ? 2 : 0;
}

TEST(Oracle, IsAskedOnceForACaseWhateverTheNumberOfChecks) {
  const auto memory = make_host_memory();
  const Kernel kernel(testing_support::check_fault("sound"));
  for (const char* text : {"batch=2 q=9 k=33 heads=4/2 dim=16 causal=bottom-right", "dtype=bf16 layout=thd q=3,0,9 k=5,4,70 dim=16"}) {
    const auto evaluations = [&](const std::vector<const CheckUnit*>& units) {
      CheckOptions options;
      options.units = units;
      const std::int64_t before = exact_evaluations();
      EXPECT_EQ(check(kernel, parse_case(text), *memory, options).state, State::pass) << text;
      return exact_evaluations() - before;
    };
    EXPECT_EQ(evaluations({}), 1) << text;
    std::vector<const CheckUnit*> most;
    for (const CheckUnit* unit : check_units()) {
      EXPECT_EQ(evaluations({unit}), 1 + further_evaluations(unit->name)) << unit->name << " on " << text;
      if (further_evaluations(unit->name) == 0) most.push_back(unit);
    }
    EXPECT_EQ(evaluations(most), 1) << text;
  }
}

}  // namespace
}  // namespace attest

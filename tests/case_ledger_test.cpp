// SPDX-License-Identifier: Apache-2.0
// The list of a run's cases, and the ledger of what it covered.
#include "reference/verify/cases/ledger.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "reference/models/builtin_kernels.h"
#include "reference/problem/case_text.h"
#include "reference/verify/cases/case_list.h"
#include "reference/verify/check.h"
#include "tests/support/check_faults.h"

namespace attest {
namespace {

Kernel flash() { return Kernel(testing_support::check_fault("sound")); }
Kernel tensor_core() { return Kernel(builtin_cpu_kernels().back()); }  // f16 and bf16 only

std::vector<std::string> texts(CaseList& list, const Kernel& kernel, std::int64_t first, std::int64_t step, std::int64_t end) {
  std::vector<std::string> all;
  for (std::int64_t n = first; n < end; n += step) all.push_back(print_case(list.at(n, kernel).value()));
  return all;
}

TEST(CaseList, BeginsWithTheCoveringArrayAndGoesOnAtRandom) {
  CaseList list({}, 7, 2);
  const Kernel kernel = flash();
  const auto last = list.at(199, kernel);
  ASSERT_TRUE(last.has_value());
  const CoveringCases covering = list.covering();
  ASSERT_LT(covering.cases.size(), 150u);
  EXPECT_EQ(list.at(3, kernel), covering.cases[3]);
  EXPECT_EQ(list.at(static_cast<std::int64_t>(covering.cases.size()), kernel), random_case({}, 7, 0));
  CaseList without({}, 7, 0);
  EXPECT_EQ(without.at(0, kernel), random_case({}, 7, 0));
}

TEST(CaseList, IsOneForAllShardsThoughAKernelDeclines) {
  const Kernel kernel = tensor_core();
  CaseList whole({}, 3, 0), even({}, 3, 0), odd({}, 3, 0);
  const std::vector<std::string> all = texts(whole, kernel, 0, 1, 20);
  const std::vector<std::string> evens = texts(even, kernel, 0, 2, 20), odds = texts(odd, kernel, 1, 2, 20);
  for (std::size_t n = 0; n < 10; ++n) {
    EXPECT_EQ(all[2 * n], evens[n]);
    EXPECT_EQ(all[2 * n + 1], odds[n]);
  }
  EXPECT_FALSE(whole.declined(20).empty());
  EXPECT_TRUE(whole.declined(0).empty());
}

TEST(CaseList, EndsWhereTheKernelDeclinesEverything) {
  attest_kernel nothing = flash().table();
  nothing.supports = [](const attest_problem*, char*, std::size_t) -> std::int32_t { return 0; };
  CaseList list({}, 1, 2);
  EXPECT_FALSE(list.at(0, Kernel(&nothing)).has_value());
}

Verdict verdict_of(const char* text, State state, const char* reason = "") {
  Verdict verdict;
  verdict.problem = parse_case(text);
  verdict.state = state;
  verdict.reason = reason;
  return verdict;
}

TEST(CaseLedger, CountsCasesByFeatureStateAndReason) {
  Ledger ledger("mine", {}, 2);
  Verdict passed = verdict_of("q=5 k=5 causal=top-left", State::pass);
  passed.checks = {{"rerun", Outcome::pass, "", {}}, {"zero-do", Outcome::not_applicable, "forward only", {}}};
  ledger.add(passed);
  ledger.add(verdict_of("q=5 k=7 causal=top-left", State::fail));
  ledger.add(verdict_of("q=5 k=7", State::waived, "issue 12"));
  ledger.add(verdict_of("q=5 k=7 alibi=on", State::unsupported, "no ALiBi"));
  const nlohmann::json json = nlohmann::json::parse(ledger.json());
  EXPECT_EQ(json["states"], (nlohmann::json{{"pass", 1}, {"fail", 1}, {"waived", 1}, {"unsupported", 1}}));
  EXPECT_EQ(json["features"]["causal"]["top-left"], (nlohmann::json{{"ran", 2}, {"bad", 1}, {"waived", 0}}));
  EXPECT_EQ(json["features"]["causal"]["off"], (nlohmann::json{{"ran", 1}, {"bad", 0}, {"waived", 1}}));
  EXPECT_EQ(json["features"]["alibi"]["on"]["ran"], 0);
  EXPECT_EQ(json["waived"]["issue 12"], 1);
  EXPECT_EQ(json["unsupported"]["no ALiBi"], 1);
  EXPECT_EQ(json["checks"]["zero-do"]["outcomes"]["not applicable"], 1);
  EXPECT_EQ(json["checks"]["zero-do"]["reasons"]["forward only"], 1);
  const std::string table = ledger.table();
  EXPECT_NE(table.find("causal       off                    1       0       1\n             top-left               2       1       0"), std::string::npos) << table;
  EXPECT_NE(table.find("waived\n        1  issue 12"), std::string::npos) << table;
}

TEST(CaseLedger, NamesTheConjunctionsThatNoCaseHad) {
  const Kernel kernel = tensor_core();
  CaseList list({}, 1, 2);
  Ledger ledger("tensor-core", {}, 2);
  constexpr std::int64_t kCases = 30;  // not all of the array
  for (std::int64_t n = 0; n < kCases; ++n) {
    Verdict verdict;
    verdict.problem = list.at(n, kernel).value();
    ledger.add(verdict);
  }
  ledger.finish(list, kCases);
  std::int64_t declined = 0, not_run = 0;
  for (const Unreached& unreached : ledger.missing()) {
    declined += unreached.reason == "declined: dtype: f16 and bf16 only";
    not_run += unreached.reason.empty();
  }
  EXPECT_GT(declined, 300);
  EXPECT_GT(not_run, 100);
  EXPECT_EQ(declined + not_run, static_cast<std::int64_t>(ledger.missing().size()));
  const nlohmann::json json = nlohmann::json::parse(ledger.json());
  EXPECT_EQ(json["combinations"]["covered"].get<std::int64_t>() + static_cast<std::int64_t>(ledger.missing().size()),
            json["combinations"]["possible"]);
  EXPECT_EQ(json["combinations"]["never_reached"].size(), ledger.missing().size());
  EXPECT_NE(ledger.table().find("never reached: declined: dtype: f16 and bf16 only\n"), std::string::npos);
  EXPECT_NE(ledger.summary().find("without: no case of this run; "), std::string::npos) << ledger.summary();
}

}  // namespace
}  // namespace attest

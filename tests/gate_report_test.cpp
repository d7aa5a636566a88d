// SPDX-License-Identifier: Apache-2.0
// The forms of a gate's result, from made-up verdicts.
#include "reference/verify/gate/gate_result.h"

#include <algorithm>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "reference/problem/case_text.h"
#include "reference/verify/generate.h"

namespace attest {
namespace {

Verdict verdict(State state, const std::string& text, double score) {
  Verdict made;
  made.state = state;
  made.kernel = "mine";
  made.request = "./libmine.so:mine";
  made.problem = parse_case(text);
  TensorVerdict o;
  o.tensor = "o";
  o.score = score;
  o.total = 100;
  o.wrong = score > 1 ? 7 : 0;
  made.tensors.push_back(o);
  return made;
}

TEST(GateReport, ThePageHoldsTenThousandCasesInTwoMegabytes) {
  GateResult result;
  for (std::uint64_t n = 0; n < 10000; ++n) {
    Verdict made = verdict(State::pass, "q=1 k=1", 0.123456);
    made.problem = random_case({}, 5, n);
    if (n % 10 == 0) {
      made.state = State::fail;
      made.findings.push_back({"guard", "o", "memory after o was written, " + std::to_string(n) + " bytes past its end"});
    }
    result.verdicts.push_back(made);
  }
  for (int n = 0; n < 12; ++n) {
    WorstCase worst{result.verdicts[static_cast<std::size_t>(n)], {}};
    for (int tensor = 0; tensor < 4; ++tensor) worst.maps.push_back({"dq", 16, 4096, 32, 128, std::vector<double>(16 * 128, 0.123456)});
    result.worst.push_back(worst);
  }
  const std::string page = html_page(result);
  EXPECT_LT(page.size(), std::size_t{2} << 20);
  EXPECT_EQ(page.find("http://", 0), page.find("http://www.w3.org/2000/svg"));
  EXPECT_EQ(page.find("src="), std::string::npos);
}

TEST(GateReport, WhatAKernelSaysCannotLeaveItsPlace) {
  GateResult result;
  Verdict hostile = verdict(State::error, "q=1 k=1", 0);
  hostile.reason = "</script><script>alert(1)</script> ``` | %25\n::error::fake";
  hostile.kind = "crash";
  result.verdicts.push_back(hostile);
  const std::string page = html_page(result);
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  const std::string markdown = markdown_summary(result);
  EXPECT_NE(markdown.find("````text\n"), std::string::npos);
  EXPECT_NE(markdown.find("\\<script>alert(1)\\</script>"), std::string::npos);
  const std::string annotations = github_annotations(result);
  EXPECT_EQ(std::count(annotations.begin(), annotations.end(), '\n'), 1);
  EXPECT_NE(annotations.find("%2525%0A::error::fake"), std::string::npos);
  EXPECT_NE(annotations.find("title=Attest%3A mine error (crash)::"), std::string::npos);
}

TEST(GateReport, ManyBadCasesAreCountedNotListed) {
  GateResult result;
  for (int n = 0; n < 50; ++n) result.verdicts.push_back(verdict(State::fail, "q=1 k=1", 3));
  const std::string annotations = github_annotations(result);
  EXPECT_EQ(std::count(annotations.begin(), annotations.end(), '\n'), 10);
  EXPECT_NE(annotations.find("41 more bad cases"), std::string::npos);
  EXPECT_NE(markdown_summary(result).find("30 more are in the report"), std::string::npos);
  EXPECT_EQ(markdown_summary(result).find("## Attest: 50 bad cases"), 0u);
}

TEST(GateReport, AnEmptyRunIsStillAPage) {
  EXPECT_NE(html_page({}).find("</html>"), std::string::npos);
  EXPECT_EQ(github_annotations({}), "");
}

TEST(ErrorMap, EachCellHasTheLargestScoreOfItsRows) {
  Values want(6, 2, 3);
  Values got = want;
  Values bound = want;
  for (double& value : bound.data) value = 1;
  got.row(3, 1)[2] = 4;
  got.row(5, 0)[0] = std::numeric_limits<double>::quiet_NaN();
  const ErrorMap map = error_map("o", want, got, bound, Dtype::f32, 3);
  EXPECT_EQ(map.rows_per_cell, 2);
  EXPECT_EQ(map.scores, (std::vector<double>{0, 0, std::numeric_limits<double>::infinity(), 0, 4, 0}));
}

}  // namespace
}  // namespace attest

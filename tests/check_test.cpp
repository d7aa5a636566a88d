// SPDX-License-Identifier: Apache-2.0
// The whole pipeline on kernels with a planted fault: each must be found, on the tensor and with the check that the
// fault belongs to, and the sound kernel must pass the same case.
#include "reference/verify/check.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reference/models/builtin_kernels.h"
#include "reference/problem/case_text.h"
#include "reference/problem/invalid_request.h"
#include "reference/verify/report.h"
#include "tests/support/faulty_kernels.h"

namespace attest {
namespace {

Verdict check_faulty(const char* kernel, const char* text) {
  const auto memory = make_host_memory();
  return check(Kernel(testing_support::faulty_kernel(kernel)), parse_case(text), *memory);
}

const TensorVerdict& tensor(const Verdict& verdict, const std::string& name) {
  for (const TensorVerdict& candidate : verdict.tensors) {
    if (candidate.tensor == name) return candidate;
  }
  throw std::logic_error("no tensor " + name);
}

TEST(Check, SoundKernelsPass) {
  const auto memory = make_host_memory();
  for (const attest_kernel* table : builtin_cpu_kernels()) {
    const Kernel kernel(table);
    const Problem problem = parse_case("dtype=bf16 layout=thd heads=4/2 q=9,0,70 k=5,3,130 causal=bottom-right");
    if (!kernel.why_unsupported(problem).empty()) continue;
    const Verdict verdict = check(kernel, problem, *memory);
    EXPECT_EQ(verdict.state, State::pass) << describe(verdict);
    EXPECT_EQ(verdict.tensors.size(), 5u);
  }
}

TEST(Check, AScaleOffByAThousandthShowsInLse) {
  const Verdict verdict = check_faulty("scale-off", "dtype=f16 q=64 k=64 dim=64");
  EXPECT_EQ(verdict.state, State::fail);
  EXPECT_GT(tensor(verdict, "lse").wrong, 32);
}

TEST(Check, AFailureSaysWhatTheBoundOfItsWorstElementIsMadeOf) {
  const Verdict verdict = check_faulty("scale-off", "dtype=f16 q=64 k=64 dim=64");
  const TensorVerdict& lse = tensor(verdict, "lse");
  const TensorVerdict& dv = tensor(verdict, "dv");
  ASSERT_FALSE(lse.parts.empty());
  for (const BoundPart& part : lse.parts) {
    EXPECT_LE(part.alone, lse.bound * (1 + 1e-9)) << part.source;
    EXPECT_NE(part.source, "operands");
  }
  EXPECT_NE(lse.parts[0].source, "rounding of P");  // which LSE never sees
  ASSERT_FALSE(dv.parts.empty());
  EXPECT_EQ(dv.parts[0].source, "rounding of P");
  EXPECT_GT(dv.parts[0].alone, 0.5 * dv.bound);
  EXPECT_NE(describe(verdict).find("of the bound, alone: "), std::string::npos);
  EXPECT_NE(json_line(verdict).find("\"parts\":{\"functions\""), std::string::npos);
}

TEST(Check, APassIsExplainedOnlyWhereAsked) {
  const auto memory = make_host_memory();
  const Kernel kernel(testing_support::faulty_kernel("top-left"));
  const Problem problem = parse_case("dtype=f16 q=16 k=16 dim=16");
  EXPECT_TRUE(tensor(check(kernel, problem, *memory), "o").parts.empty());
  CheckOptions options;
  options.explain = true;
  EXPECT_FALSE(tensor(check(kernel, problem, *memory, options), "o").parts.empty());
}

TEST(Check, CausalAlignmentShowsOnlyWhereLengthsDiffer) {
  EXPECT_EQ(check_faulty("top-left", "q=5 k=5 causal=bottom-right").state, State::pass);
  const Verdict verdict = check_faulty("top-left", "q=3 k=5 causal=bottom-right");
  EXPECT_EQ(verdict.state, State::fail);
  EXPECT_GT(tensor(verdict, "o").wrong, 0);
}

TEST(Check, AFaultOfTheBackwardLeavesTheForwardClean) {
  const Verdict verdict = check_faulty("no-causal-backward", "q=9 k=9 causal=top-left");
  EXPECT_EQ(verdict.state, State::fail);
  EXPECT_EQ(tensor(verdict, "o").wrong, 0);
  EXPECT_EQ(tensor(verdict, "lse").wrong, 0);
  EXPECT_GT(tensor(verdict, "dq").wrong, 0);
  EXPECT_GT(tensor(verdict, "dk").wrong, 0);
  EXPECT_GT(tensor(verdict, "dv").wrong, 0);
}

TEST(Check, UnwrittenOutputsAreNamed) {
  const Verdict verdict = check_faulty("writes-nothing", "direction=forward q=2 k=3 dim=4 heads=2");
  EXPECT_EQ(verdict.state, State::fail);
  ASSERT_EQ(verdict.findings.size(), 2u);
  EXPECT_EQ(verdict.findings[0].check, "unwritten");
  EXPECT_EQ(verdict.findings[0].message, "16 of 16 elements of o were never written, first [b=0 h=0 i=0 d=0]");
  EXPECT_EQ(verdict.findings[1].message, "4 of 4 elements of lse were never written, first [b=0 h=0 i=0]");
  EXPECT_EQ(tensor(verdict, "o").wrong, 16);
}

TEST(Check, WritesOutsideAreFound) {
  const Verdict before = check_faulty("writes-before", "direction=forward q=2 k=3");
  ASSERT_EQ(before.findings.size(), 1u);
  EXPECT_EQ(before.findings[0].check, "guard");
  EXPECT_EQ(before.findings[0].message, "memory before o was written, 1 bytes ahead of it");
  EXPECT_EQ(before.state, State::fail);

  const Verdict gap = check_faulty("writes-gap", "direction=forward q=2 k=3 dim=8 heads=2 strides.o=48,24,12");
  ASSERT_EQ(gap.findings.size(), 1u);
  EXPECT_EQ(gap.findings[0].check, "gap");
  EXPECT_EQ(gap.findings[0].message, "padding or a gap between rows of o was written, at byte 32");

  const Verdict after = check_faulty("writes-gap", "direction=forward q=1 k=3 dim=8");
  ASSERT_EQ(after.findings.size(), 1u);
  EXPECT_EQ(after.findings[0].message, "memory after o was written, 0 bytes past its end");
}

TEST(Check, ChangedInputsAreFound) {
  const Verdict verdict = check_faulty("changes-input", "direction=forward q=2 k=3");
  EXPECT_EQ(verdict.state, State::fail);
  ASSERT_EQ(verdict.findings.size(), 1u);
  EXPECT_EQ(verdict.findings[0].check, "input");
  EXPECT_EQ(verdict.findings[0].tensor, "q");
}

TEST(Check, ARefusalIsUnsupportedOnlyWhereNothingWasWritten) {
  const Verdict refused = check_faulty("refuses", "q=2 k=3");
  EXPECT_EQ(refused.state, State::unsupported);
  EXPECT_EQ(refused.reason, "forward refused the call: planted refusal");
  const Verdict late = check_faulty("refuses-late", "q=2 k=3");
  EXPECT_EQ(late.state, State::error);
  EXPECT_EQ(late.reason, "forward refused the call (planted late refusal) after it had written results");
}

TEST(Check, ExceptionsAreErrors) {
  const Verdict threw = check_faulty("throws", "q=2 k=3");
  EXPECT_EQ(threw.state, State::error);
  EXPECT_EQ(threw.reason, "threw: planted exception");
}

TEST(Check, BackwardAloneUsesTheExactForward) {
  const Verdict verdict = check_faulty("writes-nothing", "direction=backward q=9 k=17 heads=2");
  EXPECT_EQ(verdict.state, State::pass) << describe(verdict);
  EXPECT_EQ(verdict.tensors.size(), 3u);
}

TEST(Check, BuffersOverTheLimitAreRefusedBeforeTheyAreMade) {
  const auto memory = make_host_memory();
  CheckOptions options;
  options.byte_limit = 1 << 20;
  const Kernel kernel(testing_support::faulty_kernel("refuses"));
  EXPECT_THROW(check(kernel, parse_case("q=4096 k=16 dim=128"), *memory, options), InvalidRequest);
}

TEST(Summary, AnEmptyRunIsNotAPass) {
  Summary summary;
  EXPECT_EQ(summary.exit_code(), 1);
  Verdict verdict;
  verdict.state = State::unsupported;
  summary.add(verdict);
  EXPECT_EQ(summary.exit_code(), 1);
  verdict.state = State::pass;
  summary.add(verdict);
  EXPECT_EQ(summary.exit_code(), 0);
  verdict.state = State::untrusted;
  summary.add(verdict);
  EXPECT_EQ(summary.exit_code(), 1);
}

constexpr const char* kPagedCase = "dtype=bf16 layout=thd heads=4/2 q=9,0,2 k=50,3,130 page=16 direction=forward";

TEST(Check, PagedKeysAreFoundThroughTheTable) {
  const auto memory = make_host_memory();
  int ran = 0;
  for (const attest_kernel* table : builtin_cpu_kernels()) {
    const Kernel kernel(table);
    if (!kernel.why_unsupported(parse_case(kPagedCase)).empty()) continue;
    const Verdict verdict = check(kernel, parse_case(kPagedCase), *memory);
    EXPECT_EQ(verdict.state, State::pass) << describe(verdict);
    ++ran;
  }
  EXPECT_GT(ran, 1);
}

/// `flash`, which takes the pages of the pool in their order.
std::int32_t forward_without_table(const attest_call* call) {
  const attest_problem& problem = *call->problem;
  std::vector<std::int32_t> in_order(static_cast<std::size_t>(problem.batch * call->page_table_stride));
  for (std::size_t at = 0; at < in_order.size(); ++at) {
    in_order[at] = static_cast<std::int32_t>(static_cast<std::int64_t>(at) % problem.pages);
  }
  attest_call changed = *call;
  changed.page_table = in_order.data();
  for (const attest_kernel* table : builtin_cpu_kernels()) {
    if (std::string(table->name) == "flash") return table->forward(&changed);
  }
  return ATTEST_FAILED;
}

TEST(Check, AKernelThatIgnoresThePageTableFails) {
  const auto memory = make_host_memory();
  for (const attest_kernel* table : builtin_cpu_kernels()) {
    if (std::string(table->name) != "flash") continue;
    attest_kernel wrong = *table;
    wrong.name = "no-page-table";
    wrong.forward = forward_without_table;
    const Verdict verdict = check(Kernel(&wrong), parse_case(kPagedCase), *memory);
    EXPECT_EQ(verdict.state, State::fail);
    EXPECT_GT(tensor(verdict, "o").wrong, 0);
  }
}

}  // namespace
}  // namespace attest

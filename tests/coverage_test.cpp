// SPDX-License-Identifier: Apache-2.0
// Coverage: which keys a case could have shown lost.
#include <gtest/gtest.h>

#include "reference/models/builtin_kernels.h"
#include "reference/oracle/bound.h"
#include "reference/problem/case_text.h"
#include "reference/problem/inputs.h"
#include "reference/verify/check.h"
#include "reference/verify/report.h"

namespace attest {
namespace {

Coverage coverage_of(const char* text) {
  const Problem problem = parse_case(text);
  const Inputs inputs = make_inputs(problem);
  const NumericsProfile profile = make_profile(numerics_preset("f16-tensorcore"), problem);
  return exact_attention_with_bounds(problem, inputs, profile, bound_mode(problem)).bounds.coverage;
}

TEST(Coverage, OrdinaryKeysAreCovered) {
  const Coverage coverage = coverage_of("dtype=f16 q=40 k=200 heads=4/2 direction=forward");
  EXPECT_EQ(coverage.keys, 400);  // once for each of two key/value heads
  EXPECT_EQ(coverage.uncovered_keys, 0);
  EXPECT_EQ(coverage.tile_edges, 2 * 7);  // 0 63 64 127 128 191 192
  EXPECT_EQ(coverage.rows, 160);
  EXPECT_EQ(coverage.uncovered_rows, 0);
  EXPECT_EQ(coverage.mask_edges, 0);
}

TEST(Coverage, KeysBelowTheBoundOfLseAreNot) {
  // Scores fall by 20 in 16 keys: from the second step on nothing is left of P.
  const Coverage coverage = coverage_of("dtype=f16 q=8 k=128 dim=64 fill=falling direction=forward");
  EXPECT_EQ(coverage.keys, 128);
  EXPECT_EQ(coverage.uncovered_keys, 112);
  EXPECT_EQ(coverage.uncovered_tile_edges, 3);
  EXPECT_EQ(coverage.uncovered_rows, 0);
}

TEST(Coverage, GradientsCoverKeysThatLseDoesNot) {
  const Coverage both = coverage_of("dtype=f16 q=8 k=32 dim=64 fill=falling:12 direction=both");
  const Coverage forward = coverage_of("dtype=f16 q=8 k=32 dim=64 fill=falling:12 direction=forward");
  EXPECT_EQ(forward.uncovered_keys, 16);
  EXPECT_LT(both.uncovered_keys, 16);
}

TEST(Coverage, EndsOfMaskedRowsAreEdges) {
  const Coverage coverage = coverage_of("dtype=f16 q=10 k=10 causal=top-left direction=forward");
  EXPECT_EQ(coverage.mask_edges, 9);  // the last row sees all
  EXPECT_EQ(coverage.uncovered_mask_edges, 0);
}

TEST(Coverage, HiddenKeysDoNotCount) {
  EXPECT_EQ(coverage_of("dtype=f16 q=1 k=10 causal=top-left direction=forward").keys, 1);
  EXPECT_EQ(coverage_of("dtype=f16 q=4 k=0 direction=forward").rows, 0);
}

TEST(Coverage, IsInTheReport) {
  const auto memory = make_host_memory();
  const Kernel kernel(builtin_cpu_kernels()[1]);
  const Verdict verdict = check(kernel, parse_case("dtype=f16 q=8 k=128 fill=falling direction=forward"), *memory);
  EXPECT_EQ(verdict.state, State::pass) << describe(verdict);
  EXPECT_NE(describe(verdict).find("112 of 128 keys (3 of 4 at tile edges) and 0 of 0 mask edges could be lost unseen"),
            std::string::npos) << describe(verdict);
  EXPECT_NE(json_line(verdict).find("\"uncovered_keys\":112"), std::string::npos);
}

}  // namespace
}  // namespace attest

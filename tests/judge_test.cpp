// SPDX-License-Identifier: Apache-2.0
// The judge says no when it must: classes first, then diff <= bound, nothing averaged or skipped.
#include "reference/verify/judge.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace attest {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(ElementScore, IsTheDifferenceOverTheBound) {
  EXPECT_EQ(element_score(1, 1, 0, Dtype::f32), 0);
  EXPECT_EQ(element_score(1, 1.5, 0.5, Dtype::f32), 1);
  EXPECT_EQ(element_score(1, 0, 0.5, Dtype::f32), 2);
  EXPECT_EQ(element_score(0, -0.0, 0, Dtype::f32), 0);
}

TEST(ElementScore, AZeroBoundAllowsNoDifference) { EXPECT_EQ(element_score(0, 1e-300, 0, Dtype::f32), kInf); }

TEST(ElementScore, NanOnOneSideFails) {
  EXPECT_EQ(element_score(1, kNan, 1e9, Dtype::f32), kInf);
  EXPECT_EQ(element_score(kNan, 1, 1e9, Dtype::f32), kInf);
  EXPECT_EQ(element_score(kNan, kNan, 0, Dtype::f32), 0);
  EXPECT_EQ(element_score(kInf, kNan, 1, Dtype::f32), kInf);
  EXPECT_EQ(element_score(1, kNan, kInf, Dtype::f32), kInf);
}

TEST(ElementScore, InfinitiesMustAgreeInSign) {
  EXPECT_EQ(element_score(kInf, kInf, 0, Dtype::f32), 0);
  EXPECT_EQ(element_score(-kInf, kInf, 1, Dtype::f32), kInf);
  EXPECT_EQ(element_score(-kInf, 3, 1e300, Dtype::f32), kInf);
  EXPECT_EQ(element_score(-kInf, -1e38, 1e300, Dtype::f32), kInf);
}

TEST(ElementScore, OverflowIsAcceptedOnlyAtTheEndOfTheRange) {
  EXPECT_EQ(element_score(65500, kInf, 10, Dtype::f16), 0);
  EXPECT_EQ(element_score(65500, -kInf, 10, Dtype::f16), kInf);
  EXPECT_EQ(element_score(60000, kInf, 10, Dtype::f16), kInf);
  EXPECT_EQ(element_score(65500, kInf, 10, Dtype::bf16), kInf);
}

TEST(ElementScore, ABrokenBoundLetsNothingPass) {
  EXPECT_EQ(element_score(1, 2, kNan, Dtype::f32), kInf);
  EXPECT_EQ(element_score(1, 2, -1, Dtype::f32), kInf);
}

struct Sample {
  std::vector<std::int64_t> lengths = {3, 0, 5};
  Values want{8, 2, 4};
  Values bound{8, 2, 4, 0.01};

  Sample() {
    for (std::size_t n = 0; n < want.data.size(); ++n) want.data[n] = std::sin(static_cast<double>(n) + 0.5) + 2;
  }
  TensorVerdict judge(const Values& got) const { return judge_tensor("o", lengths, want, got, bound, Dtype::f32); }
};

TEST(JudgeTensor, AcceptsTheExactValues) {
  const Sample sample;
  const TensorVerdict verdict = sample.judge(sample.want);
  EXPECT_EQ(verdict.wrong, 0);
  EXPECT_EQ(verdict.score, 0);
  EXPECT_EQ(verdict.total, 64);
  EXPECT_FALSE(verdict.powerless);
}

TEST(JudgeTensor, NamesThePlaceOfOneWrongElement) {
  const Sample sample;
  Values got = sample.want;
  got.at(4, 1, 2) += 0.05;  // token 4 is row 1 of sequence 2
  const TensorVerdict verdict = sample.judge(got);
  EXPECT_EQ(verdict.wrong, 1);
  EXPECT_NEAR(verdict.score, 5, 1e-9);
  EXPECT_EQ(print_place(verdict.worst), "[b=2 h=1 i=1 d=2]");
  EXPECT_EQ(verdict.want, sample.want.at(4, 1, 2));
  EXPECT_EQ(verdict.bound, 0.01);
  EXPECT_EQ(verdict.cluster, "sequence 2, head 1, row 1, column 2");
}

TEST(JudgeTensor, ANanOutranksALargeDifference) {
  const Sample sample;
  Values got = sample.want;
  got.at(0, 0, 0) += 100;
  got.at(7, 1, 3) = kNan;
  const TensorVerdict verdict = sample.judge(got);
  EXPECT_EQ(verdict.wrong, 2);
  EXPECT_EQ(verdict.score, kInf);
  EXPECT_TRUE(std::isnan(verdict.got));
}

TEST(JudgeTensor, RejectsZerosConstantsAndNegation) {
  const Sample sample;
  Values zeros(8, 2, 4), constant(8, 2, 4, 2.0), negated = sample.want;
  for (double& value : negated.data) value = -value;
  EXPECT_EQ(sample.judge(zeros).wrong, 64);
  EXPECT_GT(sample.judge(constant).wrong, 40);
  EXPECT_EQ(sample.judge(negated).wrong, 64);
}

TEST(JudgeTensor, FindsOneWrongElementInTenMillion) {
  const std::vector<std::int64_t> lengths = {10000};
  const Values want(10000, 10, 100, 1.0);
  const Values bound(10000, 10, 100, 1e-6);
  Values got = want;
  got.at(7777, 3, 42) += 2e-6;
  const TensorVerdict verdict = judge_tensor("o", lengths, want, got, bound, Dtype::f32);
  EXPECT_EQ(verdict.wrong, 1);
  EXPECT_EQ(print_place(verdict.worst), "[b=0 h=3 i=7777 d=42]");
}

TEST(JudgeTensor, ABoundLargerThanTheValuesHasNoPower) {
  Sample sample;
  std::fill(sample.bound.data.begin(), sample.bound.data.end(), 5.0);
  EXPECT_TRUE(sample.judge(sample.want).powerless);
}

TEST(JudgeTensor, ExactZerosHavePower) {
  Sample sample;
  std::fill(sample.want.data.begin(), sample.want.data.end(), 0.0);
  std::fill(sample.bound.data.begin(), sample.bound.data.end(), 0.0);
  EXPECT_FALSE(sample.judge(sample.want).powerless);
  Values got = sample.want;
  got.data[5] = 1e-30;
  EXPECT_EQ(sample.judge(got).wrong, 1);
}

TEST(JudgeTensor, CountsWhatIsUnspecified) {
  Sample sample;
  sample.bound.data[0] = kInf;
  Values got = sample.want;
  got.data[0] = 1e6;
  const TensorVerdict verdict = sample.judge(got);
  EXPECT_EQ(verdict.unspecified, 1);
  EXPECT_EQ(verdict.wrong, 0);
}

/// 2000 elements near 1 with bounds of four deviations, and errors of `size` deviations that alternate or lean outward.
TensorVerdict judged_errors(double size, bool lean) {
  const std::vector<std::int64_t> lengths = {2000};
  const double deviation = 1e-3;
  Values want(2000, 1, 1, 1.0), bound(2000, 1, 1, 4 * deviation), got = want;
  for (std::size_t n = 0; n < 2000; ++n) {
    if (n % 3 == 0) want.data[n] = -1;
    const double sign = lean ? (want.data[n] < 0 ? -1 : 1) : n % 2 == 0 ? 1 : -1;
    got.data[n] = want.data[n] + sign * size * deviation / std::sqrt(3);
  }
  return judge_tensor("o", lengths, want, got, bound, Dtype::f64, 4);
}

TEST(JudgeWarnings, ErrorsOfTheExpectedSizeGiveNone) {
  const TensorVerdict verdict = judged_errors(1, false);
  EXPECT_NEAR(verdict.rms, 1, 1e-6);
  EXPECT_NEAR(verdict.bias, 0, 0.01);
  EXPECT_TRUE(verdict.warnings().empty());
}

TEST(JudgeWarnings, CoarserErrorsThroughoutPassButAreNamed) {
  const TensorVerdict verdict = judged_errors(1.3, false);
  EXPECT_EQ(verdict.wrong, 0);
  EXPECT_NEAR(verdict.rms, 1.3, 1e-6);
  ASSERT_EQ(verdict.warnings().size(), 1u);
  EXPECT_EQ(verdict.warnings()[0], "rms: errors are 1.30 of their expected deviation, above 1.2");
}

TEST(JudgeWarnings, ErrorsThatLeanAreNamedWithTheirDirection) {
  const TensorVerdict outward = judged_errors(0.2, true), inward = judged_errors(-0.2, true);
  EXPECT_NEAR(outward.bias, 0.2, 1e-6);
  ASSERT_EQ(outward.warnings().size(), 1u);
  EXPECT_NE(outward.warnings()[0].find("bias: errors lean away from zero by 0.20"), std::string::npos);
  EXPECT_NE(inward.warnings()[0].find("toward zero"), std::string::npos);
}

TEST(JudgeWarnings, AProfileTooCoarseIsNamed) {
  const TensorVerdict verdict = judged_errors(0.1, false);
  ASSERT_EQ(verdict.warnings().size(), 1u);
  EXPECT_NE(verdict.warnings()[0].find("loose: the largest score is 0.014"), std::string::npos) << verdict.warnings()[0];
}

TEST(JudgeWarnings, WorstCaseBoundsAndFewElementsSayNothing) {
  const Sample sample;
  EXPECT_TRUE(std::isnan(sample.judge(sample.want).rms));
  EXPECT_TRUE(sample.judge(sample.want).warnings().empty());
  const TensorVerdict few = judge_tensor("o", sample.lengths, sample.want, sample.want, sample.bound, Dtype::f32, 4);
  EXPECT_TRUE(std::isnan(few.bias));
}

RC_GTEST_PROP(JudgeProperty, NoiseBeyondTheBoundIsAlwaysSeen, (std::uint32_t position, bool up)) {
  const Sample sample;
  Values got = sample.want;
  const std::size_t at = position % got.data.size();
  got.data[at] += up ? 0.0101 : -0.0101;
  RC_ASSERT(sample.judge(got).wrong == 1);
}

RC_GTEST_PROP(JudgeProperty, RoundedExactOutputsPassHalfAnUlp, ()) {
  Sample sample;
  Values got = sample.want;
  const Dtype type = *rc::gen::element(Dtype::f16, Dtype::bf16, Dtype::f32);
  for (std::size_t n = 0; n < got.data.size(); ++n) {
    got.data[n] = round_to(type, got.data[n]);
    sample.bound.data[n] = std::abs(sample.want.data[n]) * format_of(type).unit_roundoff();
  }
  RC_ASSERT(judge_tensor("o", sample.lengths, sample.want, got, sample.bound, type).wrong == 0);
}

TEST(ClusterCount, SaysWhereErrorsLie) {
  ClusterCount cluster(1, 4, 8);
  for (std::int64_t i = 64; i < 128; ++i) {
    for (std::int64_t d = 0; d < 8; ++d) cluster.add({0, 2, i, d});
  }
  EXPECT_EQ(cluster.describe(), "head 2, rows 64 to 127, every column");
  EXPECT_EQ(ClusterCount(1, 4, 8).describe(), "");
}

}  // namespace
}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// The stages of the runbook that look at inputs: each says what it found, with evidence.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "reference/oracle/bound.h"
#include "reference/problem/case_text.h"
#include "tests/support/capture_file.h"

namespace attest {
namespace {

using testing_support::CaptureFile;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<double> filled(const std::vector<std::int64_t>& shape, double value) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return std::vector<double>(static_cast<std::size_t>(count), value);
}

diagnose::Diagnosis with_strides(const char* call, const char* strides) {
  CaptureFile file(call);
  file.metadata["strides.q"] = strides;
  return file.diagnose();
}

TEST(DiagnoseContract, LooksAtStrides) {
  const char* padded = "heads=3 dim=8 batch=2 q=20 k=20 direction=forward";  // q [2, 20, 3, 8]
  EXPECT_SAYS(with_strides(padded, "480,8,160,1"), "contract", "in memory it was bhsd");
  EXPECT_SAYS(with_strides(padded, "960,24,8,2"), "contract", "the innermost is not 1");
  EXPECT_SAYS(with_strides(padded, "480,24,4,1"), "contract", "rows overlap");
  EXPECT_SAYS(with_strides(padded, "0,24,8,1"), "contract", "dimension 0 is broadcast");
  EXPECT_SAYS(with_strides(padded, "540,27,9,1"), "contract", "rows start at no multiple of 16 bytes");
  EXPECT_SAYS(with_strides(padded, "960,48,16,1"), "contract", "not contiguous");
  EXPECT_SAYS(with_strides(padded, "-480,24,8,1"), "contract", "below 0");
  EXPECT_EQ(diagnose::print(with_strides(padded, "480,24,8,1")).find("strides"), std::string::npos);
  EXPECT_SAYS(with_strides("layout=bhsd heads=3 dim=8 batch=2 q=20 k=20", "480,8,24,1"), "contract", "in memory it was bshd");
}

TEST(DiagnoseContract, SuspectsALayoutFromItsSizes) {
  // [B, H, S, D] given as bshd: 40 "heads" of 3 "rows".
  CaptureFile file("layout=bhsd heads=3 dim=8 batch=2 q=40 k=40 direction=forward");
  file.metadata["layout"] = "bshd";
  file.tensors.erase("lse");
  file.tensors.erase("seq_q");
  file.tensors.erase("seq_k");
  EXPECT_SAYS(file.diagnose(), "contract", "40 query heads and only 3 rows");
}

TEST(DiagnoseContract, ComparesWhatMetadataAndTensorsSay) {
  CaptureFile file("heads=4/2 dim=8 q=20 k=20");
  file.metadata["dtype"] = "bf16";
  file.metadata["heads"] = "4";
  file.metadata["colour"] = "blue";
  const diagnose::Diagnosis found = file.diagnose();
  EXPECT_SAYS(found, "contract", "metadata says dtype=bf16, the tensors f32");
  EXPECT_SAYS(found, "contract", "metadata says heads=4, the tensors 4/2");
  EXPECT_SAYS(found, "contract", "'colour' is no word of the case text");
}

TEST(DiagnoseOffsets, FindsAMaximumThatIsTooSmallInPackedBatches) {
  CaptureFile file("layout=thd heads=2 dim=8 q=20,33 k=41,49");
  file.metadata["max_q"] = "32";
  EXPECT_SAYS(file.diagnose(), "offsets", "max_q is 32, the longest sequence has 33 tokens");
}

TEST(DiagnoseCoverage, NamesTheMaskThatHidesARow) {
  EXPECT_SAYS(CaptureFile("heads=1 dim=8 q=30 k=20 causal=bottom-right direction=forward").diagnose(), "coverage", "10 of 30 rows see no key, from [b=0 h=0 i=0] to [b=0 h=0 i=9]: causal bottom-right with Sq > Sk");
  EXPECT_SAYS(CaptureFile("heads=1 dim=8 q=40 k=20 window=5,5,top-left direction=forward").diagnose(), "coverage", "15 of 40 rows see no key, from [b=0 h=0 i=25] to [b=0 h=0 i=39]: the window");
  CaptureFile mask("heads=1 dim=8 q=20 k=20 mask=11qk:1 direction=forward");
  std::fill_n(mask.tensors["mask"].bytes.begin() + 20 * 7, 20, std::byte{0});
  EXPECT_SAYS(mask.diagnose(), "coverage", "1 of 20 rows see no key, from [b=0 h=0 i=7] to [b=0 h=0 i=7]: the explicit mask");
  EXPECT_SAYS(CaptureFile("heads=1 dim=8 q=32 k=32 block=16x16:random=0 direction=forward").diagnose(), "coverage", "32 of 32 rows see no key, from [b=0 h=0 i=0] to [b=0 h=0 i=31]: the block mask");
  CaptureFile bias("heads=1 dim=8 q=20 k=20 bias=11qk direction=forward");
  for (std::size_t j = 0; j < 20; ++j) bias.set("bias", 20 * 7 + j, -kInfinity);
  EXPECT_SAYS(bias.diagnose(), "coverage", "1 of 20 rows see no key, from [b=0 h=0 i=7] to [b=0 h=0 i=7]: a bias of -inf throughout");
  EXPECT_SAYS(CaptureFile("heads=1 dim=8 q=20,10 k=20,0 direction=forward").diagnose(), "coverage", "10 of 30 rows see no key, from [b=1 h=0 i=0] to [b=1 h=0 i=9]: a sequence without keys");
  // Row 3 sees keys 0 to 3 by causal, and 5 to 19 by the mask.
  CaptureFile both("heads=1 dim=8 q=20 k=20 mask=11qk:1 causal=top-left direction=forward");
  std::fill_n(both.tensors["mask"].bytes.begin() + 20 * 3, 5, std::byte{0});
  EXPECT_SAYS(both.diagnose(), "coverage", "1 of 20 rows see no key, from [b=0 h=0 i=3] to [b=0 h=0 i=3]: the combination of causal and mask");
  EXPECT_SAYS(CaptureFile("heads=1 dim=8 q=100 k=100 window=20,0 direction=forward").diagnose(), "coverage", "in 16 of 100 rows the first 64 keys are hidden");
}

TEST(DiagnoseNonFiniteInputs, SaysWhereAndWhetherTheyAreSeen) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CaptureFile file("heads=1 dim=8 q=20 k=30 qrows=22 krows=32 causal=top-left direction=forward");
  file.set("v", 25 * 8, nan);
  file.set("v", 3 * 8 + 2, kInfinity);
  file.set("v", 31 * 8, nan);
  EXPECT_SAYS(file.diagnose(), "non-finite", "v has 2 NaN and 1 infinities in 3 rows: 1 visible, 1 hidden by the mask, 1 in padding; first at [b=0 h=0 i=3 d=2]");
  CaptureFile bias("heads=1 dim=8 q=20 k=20 bias=11qk direction=forward");
  bias.set("bias", 5, nan);
  EXPECT_SAYS(bias.diagnose(), "non-finite", "the bias has 1 NaN and 0 +inf");
  CaptureFile d_lse("heads=1 dim=8 q=20 k=20 dlse=on");
  d_lse.set("dlse", 5, nan);
  EXPECT_SAYS(d_lse.diagnose(), "non-finite", "dlse has 1 NaN and 0 infinities; first at [b=0 h=0 i=5]");
}

diagnose::Diagnosis scaled(const char* call, const char* scale) {
  CaptureFile file(call);
  file.metadata["scale"] = scale;
  return file.diagnose();
}

TEST(DiagnoseRange, SaysWhereArithmeticWithoutTheMaximumFails) {
  const char *single = "heads=1 dim=8 q=20 k=30 direction=forward", *half = "dtype=f16 heads=1 dim=8 q=20 k=30 direction=forward";
  EXPECT_SAYS(scaled(single, "40"), "range", "overflows float32");
  EXPECT_SAYS(scaled(half, "4"), "range", "overflows float16");
  EXPECT_SAYS(scaled(single, "40"), "range", "of 20 rows put more than 0.999 of their weight on one key");
  const auto biased = [](const char* type, double value) {
    CaptureFile file(std::string(type) + " heads=1 dim=8 q=20 k=30 bias=11qk direction=forward");
    file.add("bias", Dtype::f32, file.tensors["bias"].shape, filled(file.tensors["bias"].shape, value));
    return file.diagnose();
  };
  EXPECT_SAYS(biased("dtype=f32", -200), "range", "without its maximum subtracted every weight is 0, and 0 / 0 NaN");
  EXPECT_SAYS(biased("dtype=f32", -200), "range", "exp(-LSE) overflows float32");
  EXPECT_SAYS(biased("dtype=f16", -40), "range", "exp of all of it is 0 in float16");
  // One large query among 2,000 is found, wherever it is.
  CaptureFile large("dtype=f16 heads=1 dim=8 q=2000 k=30 direction=forward");
  for (std::size_t c = 0; c < 8; ++c) large.set("q", 1234 * 8 + c, 60000);
  const diagnose::Diagnosis found = large.diagnose();
  EXPECT_SAYS(found, "range", "at [b=0 h=0 i=1234]");
  EXPECT_SAYS(found, "range", "beyond float16");
}

TEST(DiagnoseScale, GuessesWhatAnUnusualScaleIs) {
  const char* call = "heads=1 dim=64/16 q=20 k=30 direction=forward";
  EXPECT_SAYS(CaptureFile(call).diagnose(), "scale", "0.125 = 1/sqrt(64)");
  EXPECT_SAYS(scaled(call, "1"), "scale", "was q scaled before, or was it forgotten?");
  EXPECT_SAYS(scaled(call, "0.015625"), "scale", "this is 1/D");
  EXPECT_SAYS(scaled(call, "8"), "scale", "this is sqrt(D)");
  EXPECT_SAYS(scaled(call, "0.25"), "scale", "this is 1/sqrt(Dv)");
  EXPECT_SAYS(scaled(call, "0.18033688"), "scale", "log2(e)");
}

TEST(DiagnoseDropout, FindsRowsThatLostEveryKey) {
  EXPECT_SAYS(CaptureFile("heads=1 dim=8 q=40 k=3 dropout=0.9@5 direction=forward").diagnose(), "dropout", " of 40 rows lost every key, the first [b=0 h=0 i=");
  EXPECT_SAYS(CaptureFile("heads=1 dim=8 q=40 k=60 dropout=0.1@5 direction=forward").diagnose(), "dropout", "each of 40 rows keeps a key");
}

TEST(DiagnoseBound, IsTheDocumentedOneForRealData) {
  const char* text = "dtype=f16 heads=1 dim=16 q=30 k=40 causal=bottom-right";
  const Problem problem = parse_case(text);
  const ExactWithBounds truth = exact_attention_with_bounds(problem, make_inputs(problem), make_profile(numerics_preset("f16-tensorcore"), problem), BoundMode::captured);
  const diagnose::Diagnosis found = CaptureFile(text).diagnose();
  const auto largest = [](const std::vector<double>& x) { return *std::max_element(x.begin(), x.end()); };
  EXPECT_SAYS(found, "bound", fmt::format("off by up to: o {:.3g} (", largest(truth.bounds.o.data)));
  EXPECT_SAYS(found, "bound", fmt::format(" lse {:.3g} (", largest(truth.bounds.lse)));
  EXPECT_SAYS(found, "bound", fmt::format(" dq {:.3g} (", largest(truth.bounds.dq.data)));
  EXPECT_SAYS(found, "bound", fmt::format(" dk {:.3g} (", largest(truth.bounds.dk.data)));
  EXPECT_SAYS(found, "bound", fmt::format(" dv {:.3g} (", largest(truth.bounds.dv.data)));
  EXPECT_SAYS(found, "bound", "(all rows)");
}

}  // namespace
}  // namespace attest

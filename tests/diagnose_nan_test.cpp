// SPDX-License-Identifier: Apache-2.0
// A NaN or infinity of each output is traced to each cause that the contract knows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "tests/support/capture_file.h"

namespace attest {
namespace {

using testing_support::CaptureFile;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kWidth = 8;

/// Element (row, column) of a tensor of one head.
std::size_t at(std::size_t row, std::size_t column = 0) { return row * kWidth + column; }

const char* const kPlain = "heads=1 dim=8 q=20 k=30";
const char* const kCausal = "heads=1 dim=8 q=20 k=30 causal=top-left";
const char* const kEmpty = "heads=1 dim=8 q=20 k=10 causal=bottom-right";  // rows 0 to 9 see nothing
const char* const kBias = "heads=1 dim=8 q=20 k=30 bias=11qk dbias=on";

/// `output` gets `value` at `element` where an input was spoilt; the trace of that output says `words`.
void expect_traced(const char* call, const std::function<void(CaptureFile&)>& spoil, const std::string& output, std::size_t element, double value,
                   const std::string& words) {
  CaptureFile file(call);
  spoil(file);
  file.set(output, element, value);
  const diagnose::Diagnosis found = file.diagnose();
  EXPECT_SAYS(found, "nan", output + " has ");
  EXPECT_SAYS(found, "nan", " of " + output + ", first [b=0 h=0 i=");
  EXPECT_SAYS(found, "nan", words);
}

void scale_all(CaptureFile& file, const std::string& name, double factor) {
  std::vector<double> x = file.values(name);
  for (double& one : x) one *= factor;
  file.add(name, file.tensors.at(name).type, file.tensors.at(name).shape, x);
}

TEST(DiagnoseNan, VisibleKey) {
  const auto in_k = [](CaptureFile& f) { f.set("k", at(5, 2), kNan); };
  const auto in_v = [](CaptureFile& f) { f.set("v", at(5, 3), kNan); };
  for (const char* output : {"o", "dq"}) {
    expect_traced(kPlain, in_k, output, at(4, 3), kNan, "visible key [b=0 h=0 i=5] has NaN or infinity in k (as the contract has it)");
    expect_traced(kPlain, in_v, output, at(4, 3), kNan, "visible key [b=0 h=0 i=5] has NaN or infinity in v (as the contract has it)");
  }
  expect_traced(kPlain, in_k, "lse", 4, kNan, "visible key [b=0 h=0 i=5] has NaN or infinity in k (as the contract has it)");
  for (const char* output : {"dk", "dv"}) expect_traced(kPlain, in_k, output, at(5), kNan, "the key's own k, which queries see (as the contract has it)");
  expect_traced(kPlain, in_v, "dk", at(5), kNan, "the key's own v, which queries see (as the contract has it)");
  // V does not enter dV.
  expect_traced(kPlain, in_v, "dv", at(5), kNan, "none of the known causes");
  // Keys beside the spoilt one: through the forward of the rows that see both.
  const auto with_forward = [&](CaptureFile& f) {
    in_k(f);
    f.set("lse", 4, kNan);
  };
  for (const char* output : {"dk", "dv"}) expect_traced(kPlain, with_forward, output, at(7), kNan, "LSE of the forward is nan there, such as [b=0 h=0 i=4] (as the contract has it)");
  const auto without_forward = [&](CaptureFile& f) {
    in_k(f);
    f.tensors.erase("lse");
    f.tensors.erase("o");
  };
  for (const char* output : {"dk", "dv"}) expect_traced(kPlain, without_forward, output, at(7), kNan, "the forward of a query that sees the key, [b=0 h=0 i=0], is not finite");
  expect_traced(kBias, in_k, "dbias", 30 * 4 + 2, kNan, "visible key [b=0 h=0 i=5] has NaN or infinity in k");
}

TEST(DiagnoseNan, EmptyRow) {
  const auto nothing = [](CaptureFile&) {};
  expect_traced(kEmpty, nothing, "o", at(3), kNan, "a row that sees no key: 0 / 0, the NaN convention");
  expect_traced(kEmpty, nothing, "lse", 3, kNan, "a row that sees no key: 0 / 0, the NaN convention");
  expect_traced(kEmpty, nothing, "dq", at(3), kNan, "a row that sees no key: 0 / 0, the NaN convention");
  expect_traced(kEmpty, nothing, "lse", 3, kInfinity, "+inf of a row that sees no key");
  expect_traced(kEmpty, nothing, "lse", 3, -kInfinity, "-inf of a row that sees no key (as the contract has it)");
  for (const char* output : {"dk", "dv"}) expect_traced(kEmpty, nothing, output, at(3), kNan, "rows that see no key: exp(-inf - -inf)");
  expect_traced("heads=1 dim=8 q=20 k=10 causal=bottom-right bias=11qk dbias=on", nothing, "dbias", 10 * 3, kNan, "a row that sees no key, [b=0 h=0 i=3]");
}

TEST(DiagnoseNan, InfiniteScore) {
  const auto spoil = [](CaptureFile& f) { f.set("bias", 30 * 4 + 5, kInfinity); };
  for (const char* output : {"o", "dq"}) expect_traced(kBias, spoil, output, at(4), kNan, "the score of key 5 is +inf (as the contract has it)");
  expect_traced(kBias, spoil, "lse", 4, kNan, "the score of key 5 is +inf (as the contract has it)");
  expect_traced(kBias, spoil, "dbias", 30 * 4 + 2, kNan, "the score of key 5 is +inf");
  const auto with_forward = [&](CaptureFile& f) {
    spoil(f);
    f.set("lse", 4, kNan);
  };
  for (const char* output : {"dk", "dv"}) expect_traced(kBias, with_forward, output, at(7), kNan, "LSE of the forward is nan there, such as [b=0 h=0 i=4] (as the contract has it)");
  const auto nan = [](CaptureFile& f) { f.set("bias", 30 * 4 + 5, kNan); };
  expect_traced(kBias, nan, "o", at(4), kNan, "the bias of key 5 is NaN (as the contract has it)");
  const auto large = [](CaptureFile& f) {
    f.set("q", at(4), 1e30);
    f.set("k", at(5), 1e30);
  };
  expect_traced(kPlain, large, "o", at(4), kNan, "overflows float32");
}

TEST(DiagnoseNan, OverflowOfTheOutputType) {
  const char* call = "dtype=bf16 out=f16 heads=1 dim=8 q=20 k=30";
  expect_traced(call, [](CaptureFile& f) { scale_all(f, "v", 1e6); }, "o", at(4), kInfinity, "overflow of f16: the exact value is");
  const auto gradients = [](CaptureFile& f) { scale_all(f, "do", 1e8); };
  for (const char* output : {"dq", "dk", "dv"}) expect_traced(call, gradients, output, at(4), kInfinity, "overflow of f16: the exact value is");
  for (const char* output : {"dk", "dv"}) expect_traced(call, [](CaptureFile&) {}, output, at(4), kInfinity, "overflow on the way: the exact value, ");
}

TEST(DiagnoseNan, HiddenZeroTimesNan) {
  const auto in_k = [](CaptureFile& f) { f.set("k", at(25), kNan); };
  const auto in_v = [](CaptureFile& f) { f.set("v", at(25, 3), kNan); };
  const std::string words = "0 * NaN from a key that the mask hides, [b=0 h=0 i=25]";
  for (const char* output : {"o", "dq"}) {
    expect_traced(kCausal, in_k, output, at(4, 3), kNan, words);
    expect_traced(kCausal, in_v, output, at(4, 3), kNan, words);
  }
  expect_traced(kCausal, in_k, "lse", 4, kNan, words);
  for (const char* output : {"dk", "dv"}) {
    expect_traced(kCausal, in_k, output, at(25), kNan, "0 * NaN from the key's own k, which no query sees");
    for (const char* input : {"q", "do"}) {
      expect_traced(kCausal, [&](CaptureFile& f) { f.set(input, at(2), kNan); }, output, at(9), kNan, "0 * NaN from q, dO or dLSE of a query that does not see the key, [b=0 h=0 i=2]");
    }
  }
  expect_traced("heads=1 dim=8 q=20 k=30 causal=top-left bias=11qk dbias=on", in_k, "dbias", 30 * 4 + 2, kNan, words);
  CaptureFile visible(kCausal);
  in_v(visible);
  EXPECT_SAYS(visible.diagnose(), "non-finite", "0 visible, 1 hidden by the mask");
}

TEST(DiagnoseNan, UnwrittenMemory) {
  for (const auto& [output, row] : {std::pair("o", 16), std::pair("lse", 4), std::pair("dq", 16), std::pair("dk", 16), std::pair("dv", 16), std::pair("dbias", 120)}) {
    CaptureFile file("dtype=f16 heads=1 dim=8 q=20 k=30 bias=11qk dbias=on");
    std::fill_n(file.tensors[output].bytes.begin() + 3 * row, row, std::byte{0xFF});
    const diagnose::Diagnosis found = file.diagnose();
    EXPECT_SAYS(found, "nan", std::string("1 of 1 rows of ") + output + ", first [b=0 h=0 i=3");
    EXPECT_SAYS(found, "nan", "unwritten memory: it holds the pre-fill");
  }
}

TEST(DiagnoseNan, OwnGradients) {
  const char* call = "heads=1 dim=8 q=20 k=30 dlse=on";
  expect_traced(call, [](CaptureFile& f) { f.set("do", at(4), kNan); }, "dq", at(4), kNan, "the row's own dO (as the contract has it)");
  expect_traced(call, [](CaptureFile& f) { f.set("dlse", 4, kNan); }, "dq", at(4), kNan, "the row's own dLSE (as the contract has it)");
  expect_traced(call, [](CaptureFile& f) { f.set("q", at(4), kNan); }, "o", at(4), kNan, "the row's own q (as the contract has it)");
  for (const char* output : {"dk", "dv"}) {
    expect_traced(call, [](CaptureFile& f) { f.set("do", at(4), kNan); }, output, at(7), kNan, "q, dO or dLSE of a query that sees the key, such as [b=0 h=0 i=4] (as the contract has it)");
  }
}

TEST(DiagnoseNan, RangeWithoutTheMaximum) {
  const auto scaled = [](const char* scale) { return [scale](CaptureFile& f) { f.metadata["scale"] = scale; }; };
  expect_traced("heads=1 dim=8 q=20 k=30", scaled("40"), "o", at(4), kNan, "overflows float32 where the maximum is not subtracted");
  expect_traced("dtype=f16 heads=1 dim=8 q=20 k=30", scaled("4"), "o", at(4), kNan, "overflows float16 where the maximum is not subtracted");
  expect_traced("heads=1 dim=8 q=1 k=1", scaled("1"), "o", at(0), kNan, "none of the known causes");
  expect_traced("heads=1 dim=8 q=60 k=60 window=10,0,top-left", [](CaptureFile&) {}, "o", at(50), kNan, "a running maximum of -inf gives exp(-inf + inf)");
}

TEST(DiagnoseNan, ARightKernelWithNanInputsIsAccusedOfNothing) {
  // Key 25 is seen by rows 25 on: their o and lse are NaN by the contract.
  CaptureFile file("heads=1 dim=8 q=40 k=40 causal=top-left direction=forward");
  file.set("k", at(25), kNan);
  for (std::size_t row = 25; row < 40; ++row) {
    file.set("lse", row, kNan);
    for (std::size_t c = 0; c < kWidth; ++c) file.set("o", at(row, c), kNan);
  }
  const diagnose::Diagnosis found = file.diagnose();
  for (const diagnose::Line& line : found.lines) EXPECT_TRUE(line.stage == "non-finite" || line.level != diagnose::Level::fault) << diagnose::print(found);
  EXPECT_SAYS(found, "nan", "15 of 15 rows of lse, first [b=0 h=0 i=25]");
}

}  // namespace
}  // namespace attest

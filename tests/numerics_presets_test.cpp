// SPDX-License-Identifier: Apache-2.0
// The presets against what docs/hardware.md says was measured on an H200, and the declarations that are refused by name.
#include <cmath>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>

#include <gtest/gtest.h>

#include "reference/oracle/numerics_profile.h"
#include "reference/problem/invalid_request.h"

namespace attest {
namespace {

std::string hardware() {
  std::ifstream file(ATTEST_SOURCE_DIR "/docs/hardware.md");
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The number that `pattern` captures in the page.
double measured(const std::string& pattern) {
  const std::string page = hardware();
  std::smatch found;
  if (!std::regex_search(page, found, std::regex(pattern))) throw std::runtime_error("not in docs/hardware.md: " + pattern);
  return std::stod(found[1]);
}

TEST(NumericsPresets, HopperPresetsAreTheMeasuredTensorCore) {
  for (const char* type : {"f16", "bf16"}) {
    const attest_accumulation& sums = numerics_preset(std::string("hopper-") + type).pv;
    const std::string row = std::string("mma.sync ") + type + " \\| ";
    EXPECT_EQ(sums.block, measured(row + "(\\d+) of"));
    EXPECT_EQ(sums.aligner_bits, measured(row + "\\d+ of \\d+ \\| (\\d+)"));
    EXPECT_EQ(sums.truncates, 1);
    EXPECT_EQ(sums.u_norm, 0x1p-23);
    EXPECT_NE(hardware().find("toward zero"), std::string::npos);
    // The generic preset allows more than was measured, never less.
    const attest_accumulation& generic = numerics_preset(std::string(type) + "-tensorcore").pv;
    EXPECT_LE(generic.block, sums.block);
    EXPECT_LE(generic.aligner_bits, sums.aligner_bits);
  }
}

TEST(NumericsPresets, ErrorsOfFunctionsCoverTheMeasuredOnes) {
  for (const NumericsPreset& preset : numerics_presets()) {
    if (preset.name == "emulated-f64") continue;
    EXPECT_GE(preset.numerics.exp_error, std::exp2(measured("ex2.approx[^\n]*\\| 2\\^(-[0-9.]+) at"))) << preset.name;
    EXPECT_GE(preset.numerics.log_error, std::exp2(measured("\\[1/2, 2\\][^\n]*\\| 2\\^(-[0-9.]+) \\|"))) << preset.name;
    EXPECT_GE(preset.numerics.tanh_error, std::exp2(measured("tanh.approx[^\n]*\\| 2\\^(-[0-9.]+) at"))) << preset.name;
  }
}

std::string refusal_of(void (*change)(attest_numerics&)) {
  attest_numerics numerics = numerics_preset("f16-tensorcore");
  change(numerics);
  Problem problem;
  problem.dtype = Dtype::f16;
  try {
    make_profile(numerics, problem);
  } catch (const InvalidRequest& error) {
    return error.what();
  }
  return "accepted";
}

TEST(NumericsProfile, RefusesByNameWhatNoBoundIsDerivedFor) {
  const auto names = [](const std::string& text, const char* field) { return text.find(field) != std::string::npos; };
  EXPECT_TRUE(names(refusal_of([](attest_numerics& n) { n.reduce_dtype = ATTEST_F16; }), "reduce_dtype"));
  EXPECT_TRUE(names(refusal_of([](attest_numerics& n) { n.reduce_dtype = ATTEST_BF16; }), "narrower partial sums"));
  EXPECT_TRUE(names(refusal_of([](attest_numerics& n) { n.p_dtype = ATTEST_F64; }), "p_dtype"));
  EXPECT_TRUE(names(refusal_of([](attest_numerics& n) { n.exp_error = 0.2; }), "exp_error"));
  EXPECT_TRUE(names(refusal_of([](attest_numerics& n) { n.input_error = -1; }), "input_error"));
  EXPECT_TRUE(names(refusal_of([](attest_numerics& n) { n.pv.u_norm = 0.5; }), "pv"));
  EXPECT_TRUE(names(refusal_of([](attest_numerics& n) { n.delta_source = 7; }), "delta_source"));
}

TEST(NumericsProfile, TakesNarrowAccumulatorsAndPolynomialExp) {
  EXPECT_EQ(refusal_of([](attest_numerics& n) { n.pv = {1, 0, 0x1p-11, 0, 0}; }), "accepted");  // float16
  EXPECT_EQ(refusal_of([](attest_numerics& n) { n.exp_error = 1e-4; }), "accepted");
}

}  // namespace
}  // namespace attest

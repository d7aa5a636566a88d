// SPDX-License-Identifier: Apache-2.0
// The bounds against those of the Python prototype (tests/prototype), element by element, within 1%.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "reference/oracle/bound.h"

namespace attest {
namespace {

constexpr std::int64_t kSq = 20, kSk = 45, kDim = 8, kDimV = 6, kHeads = 2;  // SIZES of make_reference.py

struct Reference {
  std::map<std::string, std::string> fields;
  std::vector<std::pair<std::string, std::vector<double>>> tensors;  // in the file's order

  bool is(const std::string& field) const { return fields.at(field) != "0"; }
  double number(const std::string& field) const { return std::stod(fields.at(field)); }
};

Reference read(const std::filesystem::path& path) {
  Reference reference;
  std::ifstream file(path);
  std::string line, name, value;
  std::getline(file, line);
  for (std::istringstream words(line); words >> name >> value;) reference.fields[name] = value;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    words >> name;
    std::vector<double> values;
    while (words >> value) values.push_back(value == "True" ? 1 : value == "False" ? 0 : std::stod(value));
    reference.tensors.emplace_back(name, values);
  }
  return reference;
}

/// The generator of make_reference.py.
class Lcg {
 public:
  double next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state_ >> 40) / 8388608.0 - 1;
  }

 private:
  std::uint64_t state_ = 12345;
};

Dtype dtype_of(const std::string& name) {
  static const std::map<std::string, Dtype> types = {
      {"fp64", Dtype::f64}, {"fp32", Dtype::f32}, {"fp16", Dtype::f16}, {"bf16", Dtype::bf16}, {"e4m3", Dtype::f8e4m3}};
  return types.at(name);
}

Problem make_problem(const Reference& reference) {
  Problem problem;
  problem.dtype = dtype_of(reference.fields.at("t_in"));
  problem.out_dtype = dtype_of(reference.fields.at("t_out"));
  problem.seq_q = {kSq};
  problem.seq_k = {kSk};
  problem.heads_q = kHeads;
  problem.dim = kDim;
  problem.dim_v = kDimV;
  problem.softcap = reference.number("softcap");
  if (reference.is("causal")) problem.causal = Causal::top_left;
  if (reference.is("bias")) problem.bias = Bias{{false, false, true, true}, Dtype::f32, 0};
  if (reference.is("dropout")) problem.dropout = Dropout{reference.number("dropout"), 7, 0};
  if (!reference.is("bwd")) problem.direction = Direction::forward;
  return problem;
}

Inputs make_inputs_of(const Problem& problem, const Reference& reference) {
  Lcg random;
  const auto draw = [&](double gain) { return round_to(problem.dtype, gain * random.next()); };
  Inputs inputs;
  inputs.q = Values(kSq, kHeads, kDim);
  inputs.k = Values(kSk, 1, kDim);
  inputs.v = Values(kSk, 1, kDimV);
  inputs.d_o = Values(kSq, kHeads, kDimV);
  const auto fill_head = [&](Values& values, std::int64_t h, double gain) {
    for (std::int64_t i = 0; i < values.tokens; ++i) {
      for (double& x : values.row(i, h)) x = draw(gain);
    }
  };
  for (int h = 0; h < kHeads; ++h) fill_head(inputs.q, h, reference.number("gain"));
  fill_head(inputs.k, 0, 2);
  fill_head(inputs.v, 0, 1);
  for (int h = 0; h < kHeads; ++h) fill_head(inputs.d_o, h, 1);
  if (problem.bias) {
    inputs.bias = {1, 1, kSq, kSk, std::vector<double>(kSq * kSk)};
    for (double& x : inputs.bias.data) x = round_to(Dtype::f32, 2 * random.next());
  }
  return inputs;
}

attest_numerics declared(const Reference& reference) {
  static const std::map<std::string, std::string> presets = {
      {"simt", "f32-simt"}, {"any", "f16-tensorcore"}, {"hopper", "hopper-f16"}, {"fp8", "hopper-fp8"}};
  attest_numerics numerics = numerics_preset(presets.at(reference.fields.at("acc")));
  numerics.p_dtype = static_cast<std::int32_t>(dtype_of(reference.fields.at("t_p")));
  numerics.p_offset = static_cast<std::int32_t>(reference.number("offset"));
  numerics.l_from_rounded = reference.is("rounded");
  numerics.lanes = static_cast<std::int32_t>(reference.number("lanes"));
  numerics.key_tile = static_cast<std::int64_t>(reference.number("tile"));
  numerics.exp_error = std::exp2(-22);
  numerics.log_error = std::exp2(-21.4);
  numerics.tanh_error = std::exp2(-10.9);
  return numerics;
}

/// One head of a tensor with heads, or all of one without.
std::vector<double> head_of(const Values& values, std::int64_t h) {
  std::vector<double> head;
  for (std::int64_t i = 0; i < values.tokens; ++i) {
    for (const double x : values.row(i, h)) head.push_back(x);
  }
  return head;
}

void expect_close(const std::vector<double>& got, const std::vector<double>& want, const std::vector<double>& trust,
                  const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  const std::size_t width = want.size() / trust.size();
  for (std::size_t n = 0; n < want.size(); ++n) {
    if (trust[n / width] == 0) continue;
    EXPECT_NEAR(got[n], want[n], 0.01 * std::abs(want[n]) + 2e-38) << what << " " << n;
  }
}

class BoundPrototype : public testing::TestWithParam<std::string> {};

TEST_P(BoundPrototype, PortGivesTheSameBounds) {
  const Reference reference = read(std::filesystem::path(ATTEST_TEST_DATA) / "bounds" / (GetParam() + ".txt"));
  const Problem problem = make_problem(reference);
  const Inputs inputs = make_inputs_of(problem, reference);
  NumericsProfile profile = make_profile(declared(reference), problem);
  // The prototype works with float32 registers whatever the types are.
  profile.u = profile.qk.u_wide = profile.pv.u_wide = profile.bwd.u_wide = 0x1p-24;
  profile.wide = false;
  const Exact exact = exact_attention(problem, inputs);
  const Bounds bounds = error_bounds(problem, inputs, exact, profile,
                                     reference.fields.at("mode") == "gen" ? BoundMode::gen : BoundMode::det);

  std::size_t line = 0;
  const auto next = [&] { return reference.tensors[line++].second; };
  for (std::int64_t h = 0; h < kHeads; ++h) {
    const std::vector<double> o = next(), lse = next(), dq = reference.is("bwd") ? next() : std::vector<double>();
    const std::vector<double> trust = next();
    std::vector<double> got_lse;
    for (std::int64_t i = 0; i < kSq; ++i) got_lse.push_back(bounds.lse[static_cast<std::size_t>(i * kHeads + h)]);
    expect_close(head_of(bounds.o, h), o, trust, "o");
    expect_close(got_lse, lse, trust, "lse");
    if (reference.is("bwd")) expect_close(head_of(bounds.dq, h), dq, trust, "dq");
  }
  if (!reference.is("bwd")) return;
  const std::vector<double> dk = next(), dv = next(), trust = next();
  expect_close(head_of(bounds.dk, 0), dk, trust, "dk");
  expect_close(head_of(bounds.dv, 0), dv, trust, "dv");
}

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(ATTEST_TEST_DATA) / "bounds")) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Cases, BoundPrototype, testing::ValuesIn(names()),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// The committed packs: what they cover, and that the Eigen oracle agrees with their exact values.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>

#include "golden/case_tensors.h"
#include "golden/lint.h"
#include "golden/pack.h"
#include "golden/profile.h"
#include "reference/verify/judge.h"
#include "tests/support/agreement.h"
#include "tests/support/slow_oracle.h"

namespace attest::golden {
namespace {

namespace fs = std::filesystem;

const std::string kPacks = ATTEST_SOURCE_DIR "/golden/packs/";
constexpr const char* kNames[] = {"smoke", "core", "edge", "exact", "onnx"};

std::vector<GoldenCase> cases_of(const std::string& name) {
  std::vector<GoldenCase> cases;
  const Pack pack = read_pack(kPacks + name);
  for (const PackEntry& entry : pack.entries) cases.push_back(load_case(pack, entry));
  return cases;
}

std::uintmax_t bytes_under(const std::string& folder) {
  std::uintmax_t bytes = 0;
  for (const auto& item : fs::recursive_directory_iterator(folder))
    bytes += item.is_regular_file() ? item.file_size() : 0;
  return bytes;
}

TEST(GoldenPacks, AreClean) {
  for (const char* name : kNames) {
    for (const std::string& breach : lint_pack(kPacks + name)) ADD_FAILURE() << name << ": " << breach;
  }
}

TEST(GoldenPacks, StaySmall) {
  EXPECT_LT(bytes_under(kPacks), std::uintmax_t{12} << 20);
  EXPECT_LT(bytes_under(kPacks + "smoke"), std::uintmax_t{300} << 10);
}

/// The slow oracle made the values; that it still gives them, to the last bit, and that the Eigen oracle agrees.
TEST(GoldenPacks, AgreeWithBothOracles) {
  std::int64_t count = 0;
  for (const char* name : kNames) {
    for (GoldenCase& golden : cases_of(name)) {
      slow::Result want = slow::attention(golden.problem, golden.inputs);
      for (const std::string& output : output_names(golden.problem)) {
        const std::vector<double>& ours = output_values(want.value, output);
        const std::vector<double>& stored = output_values(golden.exact, output);
        ASSERT_EQ(ours.size(), stored.size());
        for (std::size_t n = 0; n < ours.size(); ++n) {
          ASSERT_EQ(encode(Dtype::f64, ours[n]), encode(Dtype::f64, stored[n])) << name << " " << output << " " << n;
        }
      }
      want.value = golden.exact;
      if (golden.set.find("=inf") == std::string::npos) {  // the two forms of delta differ where a value is infinite
        EXPECT_EQ(first_disagreement(exact_attention(golden.problem, golden.inputs), want), "")
            << name << " " << golden.set;
      }
      ++count;
    }
  }
  EXPECT_GT(count, 400);
}

TEST(GoldenPacks, BoundWhatTheyHold) {
  for (const char* name : kNames) {
    for (GoldenCase& golden : cases_of(name)) {
      for (const std::string& output : output_names(golden.problem)) {
        std::int64_t unbounded = 0;
        const std::vector<double>& bounds = output_values(golden.bounds, output);
        const std::vector<double>& want = output_values(golden.exact, output);
        for (std::size_t n = 0; n < bounds.size(); ++n) unbounded += std::isinf(bounds[n]) && std::isfinite(want[n]);
        EXPECT_LE(100 * unbounded, static_cast<std::int64_t>(bounds.size())) << name << " " << output;
      }
    }
  }
}

using Feature = std::function<bool(const Problem&)>;
const std::vector<std::pair<const char*, Feature>> kFeatures = {
    {"type", [](const Problem& p) { return p.dtype != Dtype::f32; }},
    {"layout", [](const Problem& p) { return p.layout != Layout::bshd; }},
    {"lengths",
     [](const Problem& p) {
       return p.seq_q != std::vector<std::int64_t>{5} || p.seq_k != std::vector<std::int64_t>{7};
     }},
    {"heads", [](const Problem& p) { return p.heads_q != p.heads_kv; }},
    {"dim", [](const Problem& p) { return p.dim != 4; }},
    {"scale", [](const Problem& p) { return p.scale.has_value(); }},
    {"softcap", [](const Problem& p) { return p.softcap > 0; }},
    {"bias", [](const Problem& p) { return p.bias.has_value(); }},
    {"alibi", [](const Problem& p) { return p.alibi; }},
    {"causal", [](const Problem& p) { return p.causal != Causal::none; }},
    {"window", [](const Problem& p) { return p.window.has_value(); }},
    {"mask", [](const Problem& p) { return p.mask.has_value(); }},
    {"block", [](const Problem& p) { return p.block.has_value(); }},
    {"dropout", [](const Problem& p) { return p.dropout.has_value(); }},
    {"dlse", [](const Problem& p) { return p.d_lse; }},
};

TEST(GoldenPacks, CoreHasEveryFeatureAloneAndEveryPairAlone) {
  const std::vector<GoldenCase> cases = cases_of("core");
  // With no feature but the two, so that what fails says which.
  const auto has_only = [&](std::size_t m, std::size_t n) {
    for (const GoldenCase& golden : cases) {
      bool fits = true;
      for (std::size_t f = 0; f < kFeatures.size(); ++f) {
        const bool free = f == 2 && (m == 1 || n == 1);  // layouts are told apart by lengths that differ
        fits &= free || kFeatures[f].second(golden.problem) == (f == m || f == n);
      }
      if (fits) return true;
    }
    return false;
  };
  for (std::size_t m = 0; m < kFeatures.size(); ++m) {
    for (std::size_t n = m; n < kFeatures.size(); ++n) {
      EXPECT_TRUE(has_only(m, n)) << kFeatures[m].first << " with " << kFeatures[n].first;
    }
  }
}

/// What an output is, and what it is not when it is off by one step of float32.
TEST(GoldenPacks, ExactAsksForEqualBits) {
  std::int64_t count = 0;
  for (GoldenCase& golden : cases_of("exact")) {
    EXPECT_FALSE(golden.exact_tensors.empty());
    for (const std::string& output : golden.exact_tensors) {
      const std::vector<double>& want = output_values(golden.exact, output);
      const std::vector<double>& bounds = output_values(golden.bounds, output);
      for (std::size_t n = 0; n < want.size(); ++n, ++count) {
        const Dtype type = golden.problem.output_dtype();
        const double off = std::nextafter(static_cast<float>(want[n]), 100.0f);
        ASSERT_EQ(element_score(want[n], round_to(type, want[n]), bounds[n], type), 0);
        ASSERT_TRUE(std::isinf(element_score(want[n], off, bounds[n], type)));
      }
    }
  }
  EXPECT_GT(count, 5000);
}

TEST(GoldenPacks, EdgeHasNonFiniteInputsHiddenAndVisible) {
  std::int64_t hidden = 0, visible = 0;
  for (const GoldenCase& golden : cases_of("edge")) {
    if (golden.set.empty()) continue;
    bool any = false;
    for (const double o : golden.exact.o.data) any |= std::isnan(o);
    (any ? visible : hidden) += 1;
  }
  EXPECT_GE(hidden, 5);
  EXPECT_GE(visible, 3);
}

}  // namespace
}  // namespace attest::golden

// SPDX-License-Identifier: Apache-2.0
// The committed packs: what they cover, and that the Eigen oracle agrees with their exact values.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "golden/case_tensors.h"
#include "golden/lint.h"
#include "golden/pack.h"
#include "golden/profile.h"
#include "reference/problem/case_text.h"
#include "reference/problem/safetensors.h"
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
  const std::size_t smoke = read_pack(kPacks + "smoke").entries.size();
  EXPECT_GE(smoke, 18u);
  EXPECT_LE(smoke, 22u);
}

/// More bits than the packs were made with change no value: what they hold are the correctly rounded ones.
TEST(GoldenPacks, HoldWhatMoreBitsGiveToo) {
  for (const char* name : {"smoke", "edge"}) {
    for (GoldenCase& golden : cases_of(name)) {
      Exact again = slow::correctly_rounded(golden.problem, golden.inputs, 2048);
      for (const std::string& output : output_names(golden.problem)) {
        const std::vector<double>& more = output_values(again, output);
        const std::vector<double>& stored = output_values(golden.exact, output);
        for (std::size_t n = 0; n < more.size(); ++n) {
          ASSERT_EQ(encode(Dtype::f64, more[n]), encode(Dtype::f64, stored[n]))
              << print_case(golden.problem) << " " << output << " " << n;
        }
      }
    }
  }
}

/// The slow oracle made the values; that it still gives them, to the last bit, and that the Eigen oracle agrees.
TEST(GoldenPacks, AgreeWithBothOracles) {
  std::int64_t count = 0;
  for (const char* name : kNames) {
    for (GoldenCase& golden : cases_of(name)) {
      slow::Result want = slow::attention(golden.problem, golden.inputs);
      Exact again = slow::correctly_rounded(golden.problem, golden.inputs);
      for (const std::string& output : output_names(golden.problem)) {
        const std::vector<double>& ours = output_values(again, output);
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

/// As the file has it: each page of a sequence is its own, and numbers past its last page name one that nobody has.
TEST(GoldenPacks, PagesOfSequencesAreTheirOwn) {
  std::int64_t tables = 0, past = 0;
  const Pack pack = read_pack(kPacks + "core");
  for (const PackEntry& entry : pack.entries) {
    const SafetensorsFile file = SafetensorsFile::parse(entry.file.path, load_file(pack, entry.file));
    const StoredTensor* stored = file.find("page_table");
    if (stored == nullptr) continue;
    ++tables;
    const std::vector<double> table = values_of(*stored, entry.file.path);
    const std::vector<double> keys = values_of(*file.find("cu_k"), entry.file.path);
    const double size = std::stod(file.metadata().at("page_size")), pages = std::stod(file.metadata().at("pages"));
    std::set<double> used, unused;
    for (std::int64_t b = 0; b < stored->shape[0]; ++b) {
      for (std::int64_t c = 0; c < stored->shape[1]; ++c) {
        const double page = table[static_cast<std::size_t>(b * stored->shape[1] + c)];
        EXPECT_TRUE(page >= 0 && page < pages) << entry.text;
        const auto at = static_cast<std::size_t>(b);
        if (static_cast<double>(c) * size < keys[at + 1] - keys[at]) {
          EXPECT_TRUE(used.insert(page).second) << entry.text;
        } else {
          unused.insert(page);
          ++past;
        }
      }
    }
    for (const double page : unused) EXPECT_FALSE(used.contains(page)) << entry.text;
  }
  EXPECT_GE(tables, 25);
  EXPECT_GE(past, 5);
}

}  // namespace
}  // namespace attest::golden

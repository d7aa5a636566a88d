// SPDX-License-Identifier: Apache-2.0
// `attest bench` as a user meets it: rows and their counts, the judgement of memory, and what it refuses. Times are
// printed, never asserted.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "tests/support/shell.h"

namespace attest {
namespace {

using testing_support::file_text;
using testing_support::ShellResult;

ShellResult bench(const std::string& arguments) {
  return testing_support::shell(std::string(ATTEST_BINARY) + " bench " + arguments);
}

TEST(AttestBench, TimesTheGridAndCountsAsThePapersDo) {
  const std::string path = testing::TempDir() + "attest_bench_grid.json";
  const ShellResult result =
      bench("--kernel flash --dtype f32 --dims 16 --lengths 16,32 --tokens 64 --hidden 32 --runs 2 --warm-up 1 --json " +
            path);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const nlohmann::json rows = nlohmann::json::parse(file_text(path));
  ASSERT_EQ(rows.size(), 4u);
  for (const nlohmann::json& row : rows) {
    const double length = row["length"].get<double>();
    // 4 S^2 D H B, half under a causal mask; H B S = 128.
    const double flops = 4 * length * 16 * 128 / (row["causal"].get<bool>() ? 2 : 1);
    EXPECT_NEAR(row["forward_tflops"].get<double>() * row["forward_ms"].get<double>() * 1e9, flops, flops * 1e-9);
    EXPECT_NEAR(row["backward_tflops"].get<double>() * row["backward_ms"].get<double>() * 1e9, 2.5 * flops, flops * 1e-9);
    EXPECT_NEAR(row["both_tflops"].get<double>() * row["both_ms"].get<double>() * 1e9, 3.5 * flops, flops * 1e-9);
    EXPECT_EQ(row["tokens"], 128);
    // q k v o do dq dk dv, LSE, and two lengths a sequence.
    const int sequences = 64 / row["length"].get<int>();
    EXPECT_EQ(row["tensor_bytes"], 8 * 64 * 32 * 4 + 128 * 4 + 2 * 4 * sequences);
  }
  EXPECT_TRUE(std::regex_search(result.output, std::regex("memory of flash f32 D16: [0-9]+ bytes a token at S 16, .* linear")))
      << result.output;
}

TEST(AttestBench, TimesAStatedCase) {
  const std::string path = testing::TempDir() + "attest_bench_case.json";
  const ShellResult result = bench(
      "--kernel flash --case 'dtype=f16 layout=thd q=3,5 k=7,5 heads=2/1 dim=8/4 causal=bottom-right direction=forward' "
      "--runs 1 --warm-up 0 --json " + path);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const nlohmann::json row = nlohmann::json::parse(file_text(path))[0];
  EXPECT_FALSE(row.contains("backward_ms"));
  // Pairs: 5 + 6 + 7 of the first sequence, 25 / 2 of the second; 2 (D + Dv) Hq operations a pair.
  EXPECT_NEAR(row["forward_tflops"].get<double>() * row["forward_ms"].get<double>() * 1e9, 48 * (18 + 12.5), 1e-6);
}

TEST(AttestBench, RefusesWhatItCannotTime) {
  struct Refused {
    const char* arguments;
    const char* named;
  };
  for (const Refused& refused :
       {Refused{"", "--kernel"}, Refused{"--kernel nobody", "kernel"}, Refused{"--kernel flash --dtype f7", "dtype"},
        Refused{"--kernel flash --dims 0", "dims"}, Refused{"--kernel flash --lengths 0", "lengths"},
        Refused{"--kernel flash --runs 0", "--runs"}, Refused{"--kernel flash --causal maybe", "--causal"},
        Refused{"--kernel flash --case 'q=4 k=4 window=1,0'", "case"},
        Refused{"--kernel flash --case 'q=4 k=4 bias=bhqk'", "case"},
        Refused{"--kernel flash --dims 8 --lengths 8 --json /nowhere/at/all.json", "json"}}) {
    const ShellResult result = bench(refused.arguments);
    EXPECT_EQ(result.exit_code, 2) << refused.arguments << "\n" << result.output;
    EXPECT_NE(result.output.find(refused.named), std::string::npos) << refused.arguments << "\n" << result.output;
  }
}

TEST(AttestBench, NothingTimedIsNotASuccess) {
  const ShellResult result = bench("--kernel " ATTEST_SAMPLE_LIBRARY " --case 'dtype=bf16 direction=forward'");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.output.find("declined"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("nothing ran"), std::string::npos) << result.output;
}

}  // namespace
}  // namespace attest

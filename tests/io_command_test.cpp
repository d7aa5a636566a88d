// SPDX-License-Identifier: Apache-2.0
// `attest io` as a user meets it: the table, the ledger by phase, JSON, the drawing, and what it refuses.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/support/shell.h"

namespace attest {
namespace {

using testing_support::file_text;
using testing_support::ShellResult;

ShellResult io(const std::string& arguments) {
  return testing_support::shell(std::string(ATTEST_BINARY) + " io " + arguments);
}

std::string temporary(const std::string& name) { return testing::TempDir() + "attest_io_" + name; }

TEST(AttestIo, PrintsEveryAlgorithmWithItsTraffic) {
  const ShellResult result = io("'dtype=f16 batch=64 heads=16 q=1024 k=1024 dim=64'");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  // 11 N^2 + 12 N d elements of 2 bytes: 16.1 GB read, 9.1 GB written, 824.6 GFLOP.
  EXPECT_TRUE(std::regex_search(result.output, std::regex("standard +none +16\\.11 +9\\.127 +824\\.63")))
      << result.output;
  for (const char* model : {"fa1", "flash", "fa3", "split-kv", "rabe-staats", "two-pass"})
    EXPECT_TRUE(std::regex_search(result.output, std::regex(std::string("\n") + model + " +\\d+x\\d+ "))) << model;
}

TEST(AttestIo, WritesCountsThatAddUp) {
  const std::string path = temporary("counts.json");
  const ShellResult result =
      io("dtype=bf16 heads=4/2 q=100,37 k=100,64 causal=bottom-right --fast-memory 16KiB --json " + path);
  ASSERT_EQ(result.exit_code, 0) << result.output;
  const nlohmann::json report = nlohmann::json::parse(file_text(path));
  EXPECT_EQ(report["fast_bytes"], 16384);
  EXPECT_EQ(report["case"], "dtype=bf16 q=100,37 k=100,64 heads=4/2 causal=bottom-right");
  ASSERT_EQ(report["models"].size(), 7u);
  for (const nlohmann::json& model : report["models"]) {
    std::int64_t reads = 0, writes = 0, flops = 0;
    for (const nlohmann::json& phase : model["phases"]) {
      flops += phase["matmul_flops"].get<std::int64_t>();
      for (const nlohmann::json& tensor : phase["slow"]) {
        reads += tensor["reads"].get<std::int64_t>();
        writes += tensor["writes"].get<std::int64_t>();
      }
    }
    EXPECT_EQ(model["reads"], reads) << model["model"];
    EXPECT_EQ(model["writes"], writes) << model["model"];
    EXPECT_EQ(model["matmul_flops"], flops) << model["model"];
    EXPECT_LE(model["peak_fast_elements"], 8192) << model["model"];
    EXPECT_NEAR(model["floor_seconds"].get<double>(),
                std::max(model["bytes"].get<double>() / 1.555e12, static_cast<double>(flops) / 312e12), 1e-15);
  }
}

TEST(AttestIo, TakesTheMachineAsGiven) {
  const std::string path = temporary("machine.json");
  ASSERT_EQ(io("dtype=f16 --bandwidth 1000 --rate 1e6 --fast-memory 98304 --json " + path).exit_code, 0);
  const nlohmann::json report = nlohmann::json::parse(file_text(path));
  EXPECT_EQ(report["fast_bytes"], 98304);
  for (const nlohmann::json& model : report["models"])
    EXPECT_DOUBLE_EQ(model["floor_seconds"].get<double>(), model["bytes"].get<double>() / 1e12);
}

TEST(AttestIo, LeavesOutHiddenBlocks) {
  const auto bytes_of_fa1 = [](const std::string& mask) {
    const std::string path = temporary("blocks.json");
    EXPECT_EQ(io("'dtype=f16 heads=2 q=1024 k=1024" + mask + "' --fast-memory 64KiB --json " + path).exit_code, 0);
    return nlohmann::json::parse(file_text(path))["models"][1]["bytes"].get<double>();
  };
  const double dense = bytes_of_fa1(""), sparse = bytes_of_fa1(" block=64x64:local=0");
  EXPECT_LT(sparse, 0.4 * dense);
  EXPECT_GT(sparse, 0);
}

TEST(AttestIo, PrintsALedgerByPhaseAndDraws) {
  const std::string path = temporary("traffic.svg");
  const ShellResult result = io("'dtype=f16 q=256 k=256' --ledger standard --ledger split-kv --svg " + path);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  for (const char* part : {"standard: elements by phase and tensor", "P = softmax(S)", "split-kv: elements", "merge"})
    EXPECT_NE(result.output.find(part), std::string::npos) << part << result.output;
  const std::string svg = file_text(path);
  EXPECT_TRUE(svg.starts_with("<svg"));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

struct BadRequest {
  const char* arguments;
  const char* says;
};
class AttestIoRefuses : public testing::TestWithParam<BadRequest> {};

TEST_P(AttestIoRefuses, ByNameWithExitTwoAndNothingWritten) {
  const std::string path = temporary("unwritten.json");
  std::filesystem::remove(path);
  const ShellResult result = io(std::string(GetParam().arguments) + " --json " + path);
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_NE(result.output.find(GetParam().says), std::string::npos) << result.output;
  EXPECT_FALSE(std::filesystem::exists(path));
}

INSTANTIATE_TEST_SUITE_P(
    Attest, AttestIoRefuses,
    testing::Values(BadRequest{"q=-1", "q: got -1"}, BadRequest{"--fast-memory 0", "fast memory: got 0 bytes"},
                    BadRequest{"--fast-memory lots", "--fast-memory"}, BadRequest{"--fast-memory -5", "fast-memory: got -5 bytes"},
                    BadRequest{"--fast-memory 2TiB", "fast-memory"},
                    BadRequest{"dtype=f64 dim=512 --fast-memory 1KiB", "one query and one key"},
                    BadRequest{"--bandwidth 0", "bandwidth: got 0"}, BadRequest{"--bandwidth nan", "bandwidth: got nan"},
                    BadRequest{"--rate -2", "rate: got -2"}, BadRequest{"--rate inf", "rate: got inf"},
                    BadRequest{"--ledger fa9", "--ledger"}, BadRequest{"q=100000000 k=100000000", "pairs of"},
                    BadRequest{"--svg no/such/folder/x.svg", "no/such/folder/x.svg"}));

}  // namespace
}  // namespace attest

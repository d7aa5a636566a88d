// SPDX-License-Identifier: Apache-2.0
// `attest gate` as CI runs it: its exit code, and what it leaves in each of its reports.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/shell.h"

namespace attest {
namespace {

using testing_support::file_text;
using testing_support::shell;
using testing_support::ShellResult;

struct Gated {
  int exit_code;
  std::string output;
  std::string folder;

  std::string file(const char* name) const { return file_text(folder + "/" + name); }
  /// The data of the page.
  nlohmann::json data() const {
    const std::string page = file("index.html");
    const std::size_t from = page.find("id=\"data\">") + 10;
    return nlohmann::json::parse(page.substr(from, page.find("</script>", from) - from));
  }
};

Gated gate(const std::string& name, const std::string& arguments, const std::string& environment = "") {
  const std::string folder = testing::TempDir() + "attest_gate_" + name;
  std::filesystem::remove_all(folder);
  const ShellResult result = shell(environment + " " ATTEST_BINARY " gate --checks none --report " + folder + " " + arguments);
  return {result.exit_code, result.output, folder};
}

std::string corpus(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "attest_gate_" + name + ".txt";
  std::FILE* file = std::fopen(path.c_str(), "w");
  std::fputs(text.c_str(), file);
  std::fclose(file);
  return path;
}

std::size_t lines(const std::string& text) { return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')); }

TEST(AttestGate, ASoundKernelPassesAndEveryReportSaysSo) {
  const Gated result = gate("sound", "--kernel flash --cases 12 --corpus " + corpus("sound", "q=3 k=5\nq=8 k=8 causal=top-left\n"));
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_EQ(lines(result.file("cases.jsonl")), 14u);
  EXPECT_NE(result.file("junit.xml").find("tests=\"14\" failures=\"0\" errors=\"0\""), std::string::npos);
  EXPECT_EQ(result.file("summary.md").find("## Attest: no fault found"), 0u);
  const nlohmann::json data = result.data();
  EXPECT_EQ(data["rows"].size(), 14u);
  EXPECT_EQ(data["worst"].size(), 12u);
  EXPECT_EQ(data["worst"][0]["maps"][0]["tensor"], "o");
  EXPECT_NE(result.output.find("2 of 2 cases of the corpora, 12 random cases"), std::string::npos) << result.output;
}

TEST(AttestGate, AFaultIsInEveryReport) {
  const Gated result = gate("fault", "--kernel " ATTEST_FAULTY_LIBRARY ":top-left --cases 1 --corpus " + corpus("fault", "q=3 k=5 causal=bottom-right\n"),
                            "GITHUB_ACTIONS=true");
  EXPECT_EQ(result.exit_code, 1);
  const std::string repeat = "attest verify --kernel " ATTEST_FAULTY_LIBRARY ":top-left --case 'q=3 k=5 causal=bottom-right'";
  EXPECT_TRUE(std::regex_search(result.output, std::regex("(^|\n)::error title=Attest%3A top-left fail::.*%0Aattest verify --kernel"))) << result.output;
  for (const char* name : {"summary.md", "index.html", "cases.jsonl"}) EXPECT_NE(result.file(name).find(repeat), std::string::npos) << name;
  EXPECT_NE(result.file("junit.xml").find("<failure type=\"fail\""), std::string::npos);
  const nlohmann::json worst = result.data()["worst"][0];
  EXPECT_EQ(worst["state"], "fail");
  EXPECT_GT(worst["maps"][0]["scores"][0], 1);
  EXPECT_TRUE(std::regex_search(result.data()["environment"].dump(), std::regex("sha256 [0-9a-f]{64}")));
}

TEST(AttestGate, SaysTheSameFileHashAsSha256sum) {
  const std::string want = shell("sha256sum " ATTEST_FAULTY_LIBRARY " | cut -d ' ' -f 1").output;
  const Gated result = gate("hash", "--kernel " ATTEST_FAULTY_LIBRARY ":top-left --cases 1");
  EXPECT_NE(result.file("summary.md").find(want.substr(0, 64)), std::string::npos);
}

TEST(AttestGate, VerdictsDoNotDependOnWorkers) {
  const auto verdicts = [](const std::string& workers) {
    const std::string name = "workers_" + workers;
    const Gated result = gate(name, "--kernel " ATTEST_FAULTY_LIBRARY ":top-left --cases 25 --seed 6 --workers " + workers);
    return std::regex_replace(result.file("cases.jsonl"), std::regex("\"seconds\":[^,}]*"), "");
  };
  const std::string want = verdicts("1");
  EXPECT_EQ(lines(want), 25u);
  EXPECT_EQ(verdicts("2"), want);
  EXPECT_EQ(verdicts("4"), want);
}

TEST(AttestGate, AHostileKernelIsAnErrorAndTheRestRuns) {
  const Gated result = gate("hostile", "--kernel " ATTEST_HOSTILE_LIBRARY ":segfault --cases 3 --corpus " +
                                           corpus("hostile", "q=13 k=9 dim=8 direction=forward\nq=12 k=9 dim=8 direction=forward\n"));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.file("summary.md").find("error (crash) forward crashed with SIGSEGV at address 0x10"), std::string::npos);
  EXPECT_NE(result.file("junit.xml").find("<error type=\"crash\""), std::string::npos);
  EXPECT_EQ(lines(result.file("cases.jsonl")), 5u);
}

TEST(AttestGate, AFlakyKernelIsCaughtByRepetition) {
  const std::string cases = corpus("flaky", "q=13 k=9 dim=8 direction=forward\n");
  const Gated result = gate("flaky", "--repeat 6 --kernel " ATTEST_HOSTILE_LIBRARY ":flaky --cases 1 --corpus " + cases);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.file("cases.jsonl").find("bad in 2 of 6 runs"), std::string::npos) << result.output;
}

TEST(AttestGate, ComparesWithABaseline) {
  const Gated result = gate("baseline", "--kernel " ATTEST_FAULTY_LIBRARY ":top-left --baseline flash --budget 20 --cases 6 --corpus " +
                                            corpus("baseline", "q=3 k=5 causal=bottom-right\n"));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(std::regex_search(result.output, std::regex("against baseline flash, [0-9]+ cases: [1-9]"))) << result.output;
  EXPECT_NE(result.output.find("time against baseline flash: "), std::string::npos) << result.output;
}

TEST(AttestGate, AnUnfinishedCorpusIsNoPass) {
  std::string cases;
  for (int n = 0; n < 400; ++n) cases += "q=300 k=300 heads=4 dim=64\n";
  const Gated result = gate("unfinished", "--kernel flash --budget 1 --corpus " + corpus("unfinished", cases));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.output.find("cases of the corpora did not run"), std::string::npos) << result.output;
}

class GateSignal : public testing::TestWithParam<int> {};

TEST_P(GateSignal, LeavesValidReports) {
  const std::string folder = testing::TempDir() + "attest_gate_signal_" + std::to_string(GetParam());
  std::filesystem::remove_all(folder);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    freopen("/dev/null", "w", stdout);
    freopen("/dev/null", "w", stderr);
    // The second case never comes back by itself.
    const std::string cases =
        corpus("signal_" + std::to_string(GetParam()), "q=12 k=9 dim=8 direction=forward\nq=13 k=9 dim=8 direction=forward\n");
    execl(ATTEST_BINARY, ATTEST_BINARY, "gate", "--checks", "none", "--workers", "2", "--kernel", ATTEST_HOSTILE_LIBRARY ":loops", "--corpus",
          cases.c_str(), "--report", folder.c_str(), nullptr);
    _exit(127);
  }
  for (int n = 0; n < 300 && file_text(folder + "/cases.jsonl").empty(); ++n) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  kill(child, GetParam());
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
  EXPECT_NE(file_text(folder + "/junit.xml").find("</testsuites>"), std::string::npos);
  EXPECT_NE(file_text(folder + "/index.html").find("</html>"), std::string::npos);
  EXPECT_NE(file_text(folder + "/summary.md").find("interrupted"), std::string::npos);
  // Nothing that it started is left.
  EXPECT_EQ(shell("pgrep -f 'worker .*:loop[s]' | wc -l").output, "0\n");
}

INSTANTIATE_TEST_SUITE_P(Attest, GateSignal, testing::Values(SIGINT, SIGTERM));

TEST(AttestGate, BadRequestsLeaveNoReport) {
  for (const auto& [arguments, says] : {std::pair{"--budget 0", "--budget"}, std::pair{"--kernel missing.so", "missing.so"},
                                        std::pair{"--repeat 0", "--repeat"}, std::pair{"--corpus missing.txt", "missing.txt"},
                                        std::pair{"--in-process --kernel flash --baseline flash", "--baseline"}}) {
    const Gated result = gate("bad", arguments);
    EXPECT_EQ(result.exit_code, 2) << result.output;
    EXPECT_NE(result.output.find(says), std::string::npos) << result.output;
    EXPECT_FALSE(std::filesystem::exists(result.folder));
  }
}

}  // namespace
}  // namespace attest

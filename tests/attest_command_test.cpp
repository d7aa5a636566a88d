// SPDX-License-Identifier: Apache-2.0
// The `attest` command as a user meets it: what it prints, what it exits with, what reports it leaves.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/shell.h"

namespace {

using Result = attest::testing_support::ShellResult;
using attest::testing_support::file_text;
using attest::testing_support::shell;

Result attest(const std::string& arguments) { return shell(std::string(ATTEST_BINARY) + " " + arguments); }

std::string temporary(const std::string& name) { return testing::TempDir() + "attest_command_" + name; }

TEST(AttestVerify, EveryBuiltInKernelPassesTheDefaultMix) {
  const Result result = attest("verify --cases 40 --seed 3");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_TRUE(std::regex_search(result.output, std::regex("standard +forward +[1-9]"))) << result.output;
  EXPECT_TRUE(std::regex_search(result.output, std::regex("flash +backward +[1-9]"))) << result.output;
}

TEST(AttestVerify, APlantedFaultFailsWithALineThatRepeatsIt) {
  const Result result = attest("verify --kernel " ATTEST_FAULTY_LIBRARY ":scale-off --case 'dtype=f16 q=64 k=64'");
  EXPECT_EQ(result.exit_code, 1);
  std::smatch match;
  ASSERT_TRUE(std::regex_search(result.output, match, std::regex("repeat   attest (.*)"))) << result.output;
  const Result again = attest(match[1]);
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_EQ(again.output, result.output);
  EXPECT_TRUE(std::regex_search(result.output, std::regex("worst at \\[b=0 h=0 i=[0-9]+\\]: want .* got .* diff .* bound .* score")))
      << result.output;
}

TEST(AttestVerify, RandomCasesFindAPlantedFault) {
  const Result result = attest("verify --kernel " ATTEST_FAULTY_LIBRARY ":top-left --cases 150");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.output.find("causal=bottom-right"), std::string::npos) << result.output;
}

TEST(AttestVerify, SaysWhatCasesCostWhereItIsAsked) {
  const std::string file = temporary("profile.json");
  const Result result = attest("verify --kernel flash --checks rerun --cases 12 --strength 0 --profile --profile-json " + file);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_TRUE(std::regex_search(result.output, std::regex("flash: 12 cases in .* a second"))) << result.output;
  EXPECT_TRUE(std::regex_search(result.output, std::regex("bounds +[0-9.]+ +[0-9.]+ +[0-9.]+% +12"))) << result.output;
  const nlohmann::json json = nlohmann::json::parse(file_text(file));
  EXPECT_EQ(json["cases"], 12);
  EXPECT_GT(json["transport_messages"], 12);
  EXPECT_GT(json["phases"]["generate"]["seconds"], 0);
  EXPECT_EQ(attest("verify --kernel flash --cases 4").output.find("phase"), std::string::npos);
}

TEST(AttestVerify, ChecksWithACaseOfTheirOwnRunOnceARun) {
  const std::string path = temporary("own.json");
  const auto lines = [&](const std::string& options) {
    attest("verify --kernel flash --checks rerun,large-offsets --strength 0 --json " + path + " " + options);
    const std::string text = file_text(path);
    EXPECT_EQ(text.find("\"large-offsets\":{\"outcome\":\"pass\"}"), text.rfind("\"large-offsets\":{")) << text;
    return std::ranges::count(text, '\n');
  };
  EXPECT_EQ(lines("--cases 5"), 6);
  EXPECT_EQ(lines("--cases 5 --shard 1/2"), 2) << "it is in shard 0";
  EXPECT_EQ(lines("--case q=3"), 1) << "stated cases alone";
  EXPECT_EQ(lines("--case 'batch=2 q=3 k=5 heads=2 dim=64 fill=normal@16'"), 1);
}

TEST(AttestVerify, NothingRunIsNotAPass) {
  const Result result = attest("verify --kernel " ATTEST_SAMPLE_LIBRARY " --case 'dtype=bf16 heads=2'");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.output.find("nothing ran"), std::string::npos) << result.output;
}

TEST(AttestVerify, AForeignKernelIsVerifiedOnWhatItSupports) {
  const Result result = attest("verify --kernel " ATTEST_SAMPLE_LIBRARY " --cases 25");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_TRUE(std::regex_search(result.output, std::regex("forward +[1-9][0-9]? +0 +0"))) << result.output;
  EXPECT_NE(result.output.find("refused"), std::string::npos) << "its strides are no part of what it is asked in advance";
  EXPECT_NE(result.output.find("declined"), std::string::npos);
}

TEST(AttestVerify, AFailureIsMadeSmallAndComesFirstNextTime) {
  const std::string failures = temporary("failures.txt");
  std::remove(failures.c_str());
  const std::string kernel = "verify --kernel " ATTEST_FAULTY_LIBRARY ":top-left --failures " + failures;
  const Result first = attest(kernel + " --case 'heads=4/2 batch=2 q=20 k=70 causal=bottom-right'");
  EXPECT_EQ(first.exit_code, 1);
  EXPECT_NE(first.output.find("--case 'q=1 k=2 dim=1 causal=bottom-right direction=forward'"), std::string::npos) << first.output;
  EXPECT_EQ(file_text(failures), "# top-left: value of o\nq=1 k=2 dim=1 causal=bottom-right direction=forward\n");
  const Result again = attest(kernel + " --cases 0 --shrink 0");
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_NE(again.output.find("forward             0           1"), std::string::npos) << again.output;
}

TEST(AttestVerify, ShardsTogetherRunTheWholeList) {
  const auto cases = [](const std::string& arguments) {
    const std::string path = temporary("shard.json");
    attest("verify --kernel flash --checks none --seed 5 --json " + path + arguments);
    std::multiset<std::string> texts;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) texts.insert(nlohmann::json::parse(line)["case"].get<std::string>());
    return texts;
  };
  std::multiset<std::string> all = cases(" --cases 9 --shard 0/2");
  all.merge(cases(" --cases 9 --shard 1/2"));
  EXPECT_EQ(all.size(), 9u);
  EXPECT_EQ(all, cases(" --cases 9"));
}

TEST(AttestVerify, ACoveringArrayComesFirstAndTheLedgerShowsIt) {
  const std::string ledger = temporary("ledger.json");
  const Result pairs = attest("verify --kernel flash --checks none --cases 160 --ledger " + ledger);
  EXPECT_EQ(pairs.exit_code, 0) << pairs.output;
  EXPECT_NE(pairs.output.find("flash: 6228 of 6228 pairs of feature values had a case (49 more exclude each other)"), std::string::npos) << pairs.output;
  const nlohmann::json json = nlohmann::json::parse(file_text(ledger));
  EXPECT_EQ(json["combinations"]["covered"], 6228);
  EXPECT_TRUE(json["combinations"]["never_reached"].empty());
  const std::string table = temporary("ledger.txt");
  const Result few = attest("verify --kernel flash --checks none --cases 20 --strength 3 --ledger " + table);
  EXPECT_NE(few.output.find("triples of feature values had a case"), std::string::npos) << few.output;
  EXPECT_NE(file_text(table).find("never reached: no case of this run\n"), std::string::npos);
}

TEST(AttestVerify, WritesJsonLinesAndJunit) {
  const std::string json = temporary("report.json");
  const std::string junit = temporary("report.xml");
  const Result result = attest("verify --kernel " ATTEST_FAULTY_LIBRARY ":scale-off --kernel flash --case 'q=3 k=5' --case 'q=64 k=64' --json " +
                               json + " --junit " + junit);
  EXPECT_EQ(result.exit_code, 1);
  std::istringstream lines(file_text(json));
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    const nlohmann::json verdict = nlohmann::json::parse(line);
    EXPECT_TRUE(verdict.contains("case") && verdict.contains("repeat") && verdict.contains("seconds"));
    EXPECT_EQ(verdict["tensors"].size(), 5u);
    EXPECT_EQ(verdict["state"], verdict["kernel"] == "flash" ? "pass" : "fail");
    ++count;
  }
  EXPECT_EQ(count, 4);
  const std::string xml = file_text(junit);
  EXPECT_NE(xml.find("<testsuite name=\"scale-off\" tests=\"2\" failures=\"2\" errors=\"0\" skipped=\"0\""), std::string::npos) << xml;
  EXPECT_NE(xml.find("<testsuite name=\"flash\" tests=\"2\" failures=\"0\""), std::string::npos) << xml;
  EXPECT_NE(xml.find("</testsuites>"), std::string::npos);
}

TEST(AttestVerify, TheSameSeedGivesTheSameReport) {
  const auto report = [](const std::string& name) {
    const std::string path = temporary(name);
    attest("verify --kernel flash --cases 10 --seed 9 --json " + path);
    return std::regex_replace(file_text(path), std::regex("\"seconds\":[^,]*,"), "");
  };
  const std::string first = report("first.json");
  EXPECT_FALSE(first.empty());
  EXPECT_EQ(first, report("second.json"));
}

TEST(AttestVerify, TheReportDoesNotDependOnWorkers) {
  const auto report = [](const std::string& options) {
    const std::string path = temporary("workers.json");
    attest("verify --kernel " ATTEST_FAULTY_LIBRARY ":top-left --cases 20 --seed 4 --json " + path + " " + options);
    return std::regex_replace(file_text(path), std::regex("\"seconds\":[^,}]*"), "");
  };
  const std::string want = report("--in-process");
  EXPECT_NE(want.find("\"fail\""), std::string::npos);
  for (const char* options : {"--workers 1", "--workers 2", "--workers 4"}) EXPECT_EQ(report(options), want) << options;
}

TEST(AttestVerify, DirectionLimitsWhatIsJudged) {
  const Result result = attest("verify --kernel " ATTEST_FAULTY_LIBRARY ":no-causal-backward --direction forward --case 'q=9 k=9 causal=top-left'");
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

TEST(AttestVerify, AnInterruptLeavesValidReports) {
  const std::string json = temporary("interrupted.json");
  const std::string junit = temporary("interrupted.xml");
  std::remove(json.c_str());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    freopen("/dev/null", "w", stdout);
    freopen("/dev/null", "w", stderr);
    execl(ATTEST_BINARY, ATTEST_BINARY, "verify", "--kernel", "flash", "--time", "60", "--json", json.c_str(), "--junit",
          junit.c_str(), nullptr);
    _exit(127);
  }
  // The first verdicts show that it is under way.
  for (int n = 0; n < 300 && file_text(json).empty(); ++n) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
  std::istringstream lines(file_text(json));
  std::string line;
  int count = 0;
  for (; std::getline(lines, line); ++count) EXPECT_TRUE(nlohmann::json::accept(line)) << line;
  EXPECT_GT(count, 0);
  EXPECT_NE(file_text(junit).find("</testsuites>"), std::string::npos);
}

TEST(AttestCase, NormalisesAndExplains) {
  const Result result = attest("case q=5 k=2 causal=bottom-right dim=64");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.output.find("case      q=5 k=2 causal=bottom-right\n"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("3 of 10 query-key pairs (30.0%)"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("3 of 5 query rows see no key: o = 0, lse = -inf"), std::string::npos) << result.output;
}

TEST(AttestKernels, ListsWhatEachDeclares) {
  const Result result = attest("kernels");
  EXPECT_EQ(result.exit_code, 0);
  for (const char* name : {"standard (cpu, forward, backward)", "flash (cpu, forward, backward)", "bf16", "tiles 64 x 64"}) {
    EXPECT_NE(result.output.find(name), std::string::npos) << result.output;
  }
}

struct BadRequest {
  const char* arguments;
  const char* says;
};

void PrintTo(const BadRequest& request, std::ostream* out) { *out << request.arguments; }

class BadRequests : public testing::TestWithParam<BadRequest> {};

TEST_P(BadRequests, GiveOneClearErrorAndExitTwo) {
  const Result result = attest(GetParam().arguments);
  EXPECT_EQ(result.exit_code, 2) << result.output;
  EXPECT_NE(result.output.find(GetParam().says), std::string::npos) << result.output;
}

INSTANTIATE_TEST_SUITE_P(
    Attest, BadRequests,
    testing::Values(BadRequest{"", "subcommand"}, BadRequest{"prove", "subcommand"}, BadRequest{"verify --case 'colour=red'", "colour=red"},
                    BadRequest{"verify --case 'q=-1'", "q: got -1"}, BadRequest{"verify --case 'heads=6/4'", "heads: got 6/4"},
                    BadRequest{"verify --case 'layout=thd cuq=0,5,3 cuk=0,1,2'", "cuq: got '0,5,3'"},
                    BadRequest{"verify --case 'dropout=1'", "dropout: got 1"}, BadRequest{"verify --case 'scale=nan'", "scale: got nan"},
                    BadRequest{"verify --case 'fill=file:missing.safetensors q=2 k=2'", "missing.safetensors"},
                    BadRequest{"verify --kernel missing.so", "missing.so"}, BadRequest{"verify --kernel flashy", "flashy"},
                    BadRequest{"verify --kernel " ATTEST_WRONG_LIBRARY_1, "attest_kernels"},
                    BadRequest{"verify --kernel " ATTEST_WRONG_LIBRARY_2, "ABI version 1"},
                    BadRequest{"verify --kernel " ATTEST_WRONG_LIBRARY_3, "ABI version 99"},
                    BadRequest{"verify --corpus missing.txt", "missing.txt"},
                    BadRequest{"verify --corpus " ATTEST_BAD_CORPUS, "bad_corpus.txt:4: heads"},
                    BadRequest{"verify --cases -1", "--cases"}, BadRequest{"verify --time 0", "--time"},
                    BadRequest{"verify --direction up", "--direction"}, BadRequest{"verify --checks some", "checks: got 'some'"},
                    BadRequest{"verify --workers 0", "--workers"},
                    BadRequest{"verify --timeout -1", "--timeout"}, BadRequest{"verify --in-process --workers 2", "--workers"},
                    BadRequest{"verify --shard 2/2", "shard: got '2/2'"}, BadRequest{"verify --known missing.txt", "missing.txt"},
                    BadRequest{"verify --cases 1 --json no/such/folder/x", "no/such/folder/x"},
                    BadRequest{"verify --case 'q=1000000 k=8 dim=4096 heads=8'", "GiB"}, BadRequest{"case 'q=1 q=2'", "q: got it twice"}));

}  // namespace

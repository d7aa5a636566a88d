// SPDX-License-Identifier: Apache-2.0
// `attest golden` and the two examples, as a user meets them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/shell.h"

namespace {

namespace fs = std::filesystem;

const std::string kGolden = ATTEST_SOURCE_DIR "/golden/";

using attest::testing_support::shell;
using Result = attest::testing_support::ShellResult;

Result golden(const std::string& arguments) { return shell(std::string(ATTEST_BINARY) + " golden " + arguments); }

std::string fresh(const std::string& name) {
  const std::string path = testing::TempDir() + "golden_command_" + name;
  fs::remove_all(path);
  return path;
}

void expect_says(const Result& result, int exit_code, const std::string& text) {
  EXPECT_EQ(result.exit_code, exit_code) << result.output;
  EXPECT_NE(result.output.find(text), std::string::npos) << result.output;
}

/// Byte for byte, twice: on one thread and on two.
void expect_made_again(const std::string& pack, const std::string& options = "",
                       const std::vector<std::string>& thread_counts = {"1", "2"}) {
  for (const std::string& threads : thread_counts) {
    const std::string made = fresh(pack + threads);
    const Result result =
        golden("make " + kGolden + "corpora/" + pack + ".txt -o " + made + " --threads " + threads + options);
    ASSERT_EQ(result.exit_code, 0) << result.output;
    const Result difference = shell("diff -r " + made + " " + kGolden + "packs/" + pack);
    EXPECT_EQ(difference.exit_code, 0) << "tools/make_packs makes all packs again: is the change meant?\n"
                                       << difference.output.substr(0, 2000);
  }
}

TEST(GoldenMake, GivesTheCommittedSmokePack) { expect_made_again("smoke"); }
TEST(GoldenMake, GivesTheCommittedEdgePack) { expect_made_again("edge"); }
TEST(GoldenMake, GivesTheCommittedExactPack) { expect_made_again("exact"); }
TEST(GoldenMake, GivesTheCommittedOnnxPack) { expect_made_again("onnx", " --onnx"); }
TEST(GoldenMake, GivesTheCommittedCorePack) { expect_made_again("core", "", {"2"}); }  // the largest: once

/// Without the committed packs in between: each pair of runs gives the same bytes.
TEST(GoldenMake, GivesTheSameBytesTwiceAndOnAnyNumberOfThreads) {
  std::vector<std::string> made;
  for (const char* threads : {"1", "1", "2", "7"}) {
    made.push_back(fresh("again" + std::to_string(made.size())));
    const Result result =
        golden("make " + kGolden + "corpora/onnx.txt --onnx -o " + made.back() + " --threads " + threads);
    ASSERT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(shell("diff -r " + made.front() + " " + made.back()).output, "") << threads;
  }
}

Result make_of(const std::string& text, const std::string& options = "") {
  const std::string corpus = fresh("corpus.txt");
  std::ofstream(corpus) << text;
  return golden("make " + corpus + " -o " + fresh("made") + options);
}

TEST(GoldenMake, RefusesWhatNoPackCanHold) {
  expect_says(make_of("# flags: Plain\ndtype=f64 q=2\n"), 2, "corpus.txt:2: dtype: got f64");
  expect_says(make_of("# flags: Plain\nq=100000 k=100000\n"), 2, "corpus.txt:2: case: got");
  expect_says(make_of("# flags: Plain\n# exact: o\nq=2 k=3 dim=2\n"), 2, "corpus.txt:3: exact: got o with");
  expect_says(make_of("# flags: Plain\n# exact: lse\nq=2 k=2 dim=2\n"), 2, "exact: got lse; outputs of the case");
  expect_says(make_of("# flags: Plain\nq=2 k=2 dim=2 dropout=0.5@1 direction=forward\n", " --onnx"), 2, "with dropout");
  expect_says(make_of("# flags: Plain\nq=2 k=2 dim=2 page=1 direction=forward\n", " --onnx"), 2, "with pages");
  expect_says(make_of("# flags: Plain\nq=2 k=2 dim=2 page=1\n"), 2,
              "corpus.txt:2: page: got 1; 0 unless direction=forward");
  expect_says(golden("make missing.txt -o " + fresh("x")), 2, "missing.txt");
  expect_says(golden("make " + kGolden + "corpora/smoke.txt -o " + kGolden), 2, "output: got");
}

TEST(GoldenCheck, PassesTheBuiltInKernels) {
  const Result result = golden("check " + kGolden + "packs/smoke " + kGolden + "packs/core " + kGolden + "packs/edge " +
                               kGolden + "packs/exact " + kGolden + "packs/onnx --kernel standard --kernel flash");
  expect_says(result, 0, "flash              backward");
}

TEST(GoldenCheck, FailsAFaultyKernelAndSaysWhatTheCasesAimAt) {
  const Result result = golden("check " + kGolden + "packs/smoke --kernel " ATTEST_FAULTY_LIBRARY ":top-left");
  expect_says(result, 1, "aimed at CausalAlignment");
  expect_says(result, 1, "bad cases aimed at CausalAlignment");
}

TEST(GoldenCheck, SeesAScaleThatIsAThousandthOff) {
  for (const char* pack : {"smoke", "core", "edge"}) {
    EXPECT_EQ(golden("check " + kGolden + "packs/" + pack + " --kernel " ATTEST_FAULTY_LIBRARY ":scale-off").exit_code,
              1);
  }
}

TEST(GoldenCheck, NamesWhatIsWrongWithAPack) {
  expect_says(golden("check missing --kernel flash"), 2, "missing/index.json: got no regular file");
  const std::string broken = fresh("broken");
  fs::copy(kGolden + "packs/smoke", broken);
  const auto victim = *fs::directory_iterator(broken);
  for (const auto& item : fs::directory_iterator(broken)) {
    if (item.path().extension() == ".safetensors") fs::resize_file(item.path(), item.file_size() - 1);
  }
  expect_says(golden("check " + broken + " --kernel flash"), 2, "as the index says");
  expect_says(golden("lint " + broken), 1, "as the index says");
}

TEST(GoldenShow, SaysWhatACaseHolds) {
  for (const auto& item : fs::directory_iterator(kGolden + "packs/smoke")) {
    if (item.path().filename().string().find("dropout") == std::string::npos) continue;
    const Result result = golden("show " + item.path().string());
    expect_says(result, 0, "keep           BOOL     [1, 2, 6, 8]");
    expect_says(result, 0, "dropout_p          0.4");
  }
  expect_says(golden("show " + kGolden + "packs/smoke/index.json"), 2, "index.json");
}

TEST(GoldenLint, FindsTheCommittedPacksClean) { expect_says(golden("lint " + kGolden + "packs/smoke"), 0, "clean"); }

TEST(GoldenExamples, CppHoldsItsAttentionAgainstThePacks) {
  const Result result = shell(std::string(ATTEST_GOLDEN_EXAMPLE) + " " + kGolden + "packs/smoke " + kGolden +
                              "packs/core " + kGolden + "packs/edge " + kGolden + "packs/exact");
  expect_says(result, 0, " 0 fail");
}

/// The system's Python with numpy, where there is one.
class GoldenExamplesPython : public testing::Test {
 protected:
  void SetUp() override {
    if (shell(python_ + " -c 'import numpy'").exit_code != 0)
      GTEST_SKIP() << "no python3 with numpy (Debian: python3-numpy)";
  }
  const std::string python_ = "PYTHONDONTWRITEBYTECODE=1 " ATTEST_PYTHON;
};

TEST_F(GoldenExamplesPython, HoldsItsAttentionAgainstThePacks) {
  for (const char* pack : {"smoke", "core", "edge", "exact", "onnx"}) {
    const Result result = shell(python_ + " " + kGolden + "examples/check_pack.py " + kGolden + "packs/" + pack);
    EXPECT_EQ(result.exit_code, 0) << result.output;
  }
}

TEST_F(GoldenExamplesPython, FailsWhereTheAttentionIsWrong) {
  const std::string folder = fresh("wrong_python");
  fs::create_directory(folder);
  const Result edit = shell("sed 's/s = cap \\* np.tanh(s \\/ cap)/pass/' " + kGolden + "examples/check_pack.py > " +
                            folder + "/check_pack.py");
  ASSERT_EQ(edit.exit_code, 0);
  expect_says(shell(python_ + " " + folder + "/check_pack.py " + kGolden + "packs/smoke"), 1, "aimed at Softcap");
}

TEST_F(GoldenExamplesPython, LeavesOutputsThatAttestHoldsAgainstThePack) {
  const std::string folder = fresh("outputs");
  const Result written =
      shell(python_ + " " + kGolden + "examples/write_outputs.py " + kGolden + "packs/smoke " + folder);
  ASSERT_EQ(written.exit_code, 0) << written.output;
  expect_says(golden("check " + kGolden + "packs/smoke --forward --outputs " + folder), 0, "forward            21");
  // Gradients are missing; then a file too many, one too few, and one of another shape.
  expect_says(golden("check " + kGolden + "packs/smoke --outputs " + folder), 1, "no tensor dq");
  std::string first, second;
  for (const auto& item : fs::directory_iterator(folder)) {
    (item.path().string().find("q-5-k-7-dim-8-f") != std::string::npos ? first : second) = item.path().string();
  }
  fs::copy_file(first, folder + "/stranger.safetensors");
  fs::copy_file(second, first, fs::copy_options::overwrite_existing);
  fs::remove(second);
  const Result result = golden("check " + kGolden + "packs/smoke --forward --outputs " + folder);
  expect_says(result, 1, "extra file " + folder + "/stranger.safetensors");
  expect_says(result, 1, second + ": got no such file");
  expect_says(result, 1, "; o [5, 1, 8] of F32");
}

TEST(GoldenCheck, RefusesAFolderOfOutputsThatIsNone) {
  expect_says(golden("check " + kGolden + "packs/smoke --outputs missing"), 2, "outputs: got 'missing'");
}

}  // namespace

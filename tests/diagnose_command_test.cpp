// SPDX-License-Identifier: Apache-2.0
// `attest diagnose` and the explanation of `attest verify` as a user meets them: what they print and exit with.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>

#include <nlohmann/json.hpp>

#include "reference/problem/input_random.h"
#include "reference/problem/invalid_request.h"
#include "reference/problem/inputs.h"
#include "tests/support/capture_file.h"
#include "tests/support/shell.h"

namespace attest {
namespace {

using testing_support::CaptureFile;
using testing_support::Fault;
using testing_support::shell;
using testing_support::ShellResult;

const char* const kCall = "dtype=f16 heads=4/2 dim=16 q=20,33 k=41,49 causal=bottom-right";

std::string temporary(const std::string& name) { return testing::TempDir() + "attest_diagnose_" + name; }
ShellResult attest(const std::string& arguments) { return shell(std::string(ATTEST_BINARY) + " " + arguments); }

std::size_t lines_of(const std::string& text) { return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')); }

/// The file is refused: one line, the words, exit code 2.
void expect_refused(const std::string& path, const std::string& words) {
  const ShellResult result = attest("diagnose " + path);
  EXPECT_EQ(result.exit_code, 2) << words << ": " << result.output;
  EXPECT_NE(result.output.find(words), std::string::npos) << words << ": " << result.output;
  EXPECT_EQ(lines_of(result.output), 1u) << result.output;
}

TEST(AttestDiagnose, ExitsWith0WhereNothingIsWrongAnd1WhereSomethingIs) {
  const std::string path = temporary("good.safetensors");
  CaptureFile(kCall).write(path);
  const ShellResult good = attest("diagnose " + path);
  EXPECT_EQ(good.exit_code, 0) << good.output;
  // In the order of the runbook.
  std::size_t at = 0;
  for (const char* stage : {"contract", "offsets", "coverage", "non-finite", "range", "scale", "bound", "nan", "values"}) {
    const std::size_t found = good.output.find(std::string("\n") + stage + " ", at == 0 ? 0 : at - 1);
    if (std::strcmp(stage, "contract") != 0) {
      EXPECT_NE(found, std::string::npos) << stage << "\n" << good.output;
      at = found;
    }
  }
  CaptureFile(kCall, Fault{"scale-1", 0, 0, testing_support::Where::both}).write(path);
  const ShellResult bad = attest("diagnose " + path);
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_NE(bad.output.find("what was computed is attention without the scale (scale 1)"), std::string::npos) << bad.output;
  const ShellResult json = attest("diagnose --json " + path);
  EXPECT_EQ(json.exit_code, 1);
  EXPECT_TRUE(nlohmann::json::parse(json.output)["wrong"].get<bool>());
  const ShellResult numerics = attest("diagnose --numerics f17 " + path);
  EXPECT_EQ(numerics.exit_code, 2);
  EXPECT_NE(numerics.output.find("f16-tensorcore"), std::string::npos) << numerics.output;
  std::filesystem::remove(path);
}

TEST(AttestDiagnose, RefusesAFileThatIsNoSafetensorsFileInOneLine) {
  const std::string path = temporary("bad.safetensors");
  expect_refused(temporary("absent.safetensors"), "no regular file");
  expect_refused(testing::TempDir(), "no regular file");
  const auto holds = [&](const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; };
  const auto header = [&](const std::string& json, const std::string& data = "") {
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(json.size() & 0xFF);
    bytes[1] = static_cast<char>(json.size() >> 8);
    holds(bytes + json + data);
  };
  holds("");
  expect_refused(path, "0 bytes");
  holds("PK\3\4 a zip file, as torch.save writes it");
  expect_refused(path, "header length");
  header("[1, 2]");
  expect_refused(path, "no JSON object");
  header("{\"q\": {");
  expect_refused(path, "not JSON");
  header(R"({"q":{"dtype":"F32","shape":[2,2],"data_offsets":[0,8]}})", "12345678");
  expect_refused(path, "16 bytes for F32 [2, 2]");
  header(R"({"q":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})", "1234");
  expect_refused(path, "a range within the 4 bytes of data");
  header(R"({"q":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}})", "12345678");
  expect_refused(path, "dtype \"C64\"");
  CaptureFile(kCall).write(path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  expect_refused(path, "bytes of data");
  std::filesystem::remove(path);
}

TEST(AttestDiagnose, RefusesAFileThatIsNotTheCaptureItClaimsToBeInOneLine) {
  const std::string path = temporary("claims.safetensors");
  const auto refused = [&](const std::function<void(CaptureFile&)>& spoil, const std::string& words, const std::string& call = kCall) {
    CaptureFile file(call);
    spoil(file);
    file.write(path);
    expect_refused(path, words);
  };
  refused([](CaptureFile& f) { f.tensors.erase("v"); }, "no tensor v");
  refused([](CaptureFile& f) { f.add_integers("k", std::vector<std::int64_t>(8)); }, "tensor k of I64");
  refused([](CaptureFile& f) { f.metadata["causal"] = "sometimes"; }, "causal: got 'sometimes'; one of: none top-left bottom-right");
  refused([](CaptureFile& f) { f.metadata["layout"] = "sbhd"; }, "one of: bshd bhsd thd");
  refused([](CaptureFile& f) { f.metadata["dropout"] = "1.5"; }, "dropout");
  refused([](CaptureFile& f) { f.metadata["window"] = "3"; }, "LEFT,RIGHT");
  refused([](CaptureFile& f) { f.metadata["max_q"] = "many"; }, "a whole number");
  refused([](CaptureFile& f) { f.metadata["case"] = "q=1,x"; }, "q: got 'x'; a whole number");
  refused([](CaptureFile& f) { f.add("seq_q", Dtype::f32, {2}, {20, 33}); }, "seq_q of F32");
  refused([](CaptureFile& f) { f.add("bias", Dtype::f32, {3, 1, 1, 1}, {1, 2, 3}); }, "bias F32 [3, 1, 1, 1]");
  refused([](CaptureFile& f) { f.add("mask", Dtype::f32, {1, 1, 1, 1}, {1}); }, "mask of F32; BOOL or U8");
  refused([](CaptureFile& f) { f.add("alibi_slopes", Dtype::f32, {3}, {1, 2, 3}); }, "alibi_slopes F32 [3]");
  std::filesystem::remove(path);
}

TEST(AttestDiagnose, ACallThatDoesNotHoldTogetherIsAFaultWithItsReason) {
  const std::string path = temporary("apart.safetensors");
  const auto faulty = [&](const std::function<void(CaptureFile&)>& spoil, const std::string& words) {
    CaptureFile file(kCall);
    spoil(file);
    file.write(path);
    const ShellResult result = attest("diagnose " + path);
    EXPECT_EQ(result.exit_code, 1) << result.output;
    EXPECT_NE(result.output.find(words), std::string::npos) << words << ": " << result.output;
    EXPECT_NE(result.output.find("nothing more was looked at"), std::string::npos) << result.output;
  };
  faulty([](CaptureFile& f) { f.add("k", Dtype::f16, {2, 49, 2, 8}, std::vector<double>(2 * 49 * 2 * 8)); }, "q has width 16 and k 8");
  faulty([](CaptureFile& f) { f.add("lse", Dtype::f32, {2, 33, 4}, std::vector<double>(2 * 33 * 4)); }, "a float tensor of shape [2, 4, 33]");
  faulty([](CaptureFile& f) { f.add_integers("seq_k", {41, 490}); }, "seq_k[1] is 490, the tensor has 49 rows");
}

TEST(AttestDiagnose, AnyDamageOfAHeaderIsRefusedOrDiagnosed) {
  const std::string path = temporary("damaged.safetensors");
  CaptureFile file("heads=2 dim=4 q=5 k=6 causal=top-left");
  file.write(path);
  const std::string whole = testing_support::file_text(path);
  std::uint64_t length = 0;
  std::memcpy(&length, whole.data(), 8);
  int refused = 0, diagnosed = 0;
  for (std::uint64_t n = 0; n < 1000; ++n) {
    std::string bytes = whole;
    const std::uint64_t word = random_word(11, 0, n);
    char& at = bytes[static_cast<std::size_t>(word % (8 + length))];
    // A digit becomes another one, so that shapes and offsets change more often than the syntax breaks.
    at = at >= '0' && at <= '9' ? static_cast<char>('0' + (word >> 32) % 10) : static_cast<char>(word >> 40);
    std::ofstream(path, std::ios::binary) << bytes;
    try {
      diagnose::diagnose_capture(path);
      ++diagnosed;
    } catch (const InvalidRequest&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(diagnosed, 20);
  std::filesystem::remove(path);
}

TEST(AttestVerify, ExplainsTheFirstFailureOfAKernelByDefault) {
  const std::string kernel = "verify --kernel " ATTEST_FAULTY_LIBRARY ":top-left --shrink 0 --case 'dtype=f16 heads=2 dim=16 q=40 k=70 causal=bottom-right' "
                             "--case 'dtype=f16 heads=2 dim=16 q=20 k=50 causal=bottom-right'";
  const ShellResult result = attest(kernel);
  EXPECT_EQ(result.exit_code, 1);
  const std::string said = "what was computed is attention with causal top-left; you asked for bottom-right [causal-top-left";
  const std::size_t first = result.output.find(said);
  ASSERT_NE(first, std::string::npos) << result.output;
  EXPECT_EQ(result.output.find(said, first + 1), std::string::npos) << "only the first failure is explained\n" << result.output;
  EXPECT_NE(result.output.find("explanation of top-left on 'dtype=f16 q=40 k=70"), std::string::npos) << result.output;
  EXPECT_EQ(attest(kernel + " --explain").output.find(said) == std::string::npos, false);
  EXPECT_EQ(attest(kernel + " --no-explain").output.find("explanation of"), std::string::npos);
}

TEST(AttestVerify, ExplainsUnwrittenOutputsByThePreFill) {
  const ShellResult result = attest("verify --kernel " ATTEST_FAULTY_LIBRARY ":writes-nothing --shrink 0 --case 'q=20 k=20 dim=8 direction=forward'");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.output.find("unwritten memory: 160 of 160 elements of o were never written, first [b=0 h=0 i=0 d=0]"), std::string::npos) << result.output;
}

TEST(AttestVerify, ExplainsNothingWhereAllPass) {
  EXPECT_EQ(attest("verify --kernel flash --case 'q=20 k=20 dim=8'").output.find("explanation of"), std::string::npos);
}

}  // namespace
}  // namespace attest

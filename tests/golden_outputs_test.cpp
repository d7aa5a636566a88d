// SPDX-License-Identifier: Apache-2.0
// `attest golden check --outputs`: outputs that another backend left in files pass where they are right, and whatever is
// missing, extra or of another shape or type is named.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "golden/case_tensors.h"
#include "golden/pack.h"
#include "reference/problem/safetensors.h"
#include "tests/support/shell.h"

namespace attest::golden {
namespace {

namespace fs = std::filesystem;
using testing_support::shell;
using testing_support::ShellResult;

const std::string kSmoke = ATTEST_SOURCE_DIR "/golden/packs/smoke";

/// One tensor of a file of outputs.
struct Output {
  StoredType type = StoredType::f64;
  std::vector<std::int64_t> shape;
  std::vector<double> values;
};
using Outputs = std::map<std::string, Output>;

class GoldenOutputs : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "golden_outputs_" + testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    const Pack pack = read_pack(kSmoke);
    for (const PackEntry& entry : pack.entries) {
      write(entry.file.path, outputs_of(load_case(pack, entry)));
      if (entry.text == "q=5 k=7 dim=8") {
        victim_ = entry.file.path;
        right_ = outputs_of(load_case(pack, entry));
      }
    }
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// What a backend of exact arithmetic would leave.
  static Outputs outputs_of(GoldenCase golden) {
    Outputs outputs;
    const std::vector<std::string> names = output_names(golden.problem);
    for (const CaseTensor& tensor : case_tensors(golden.problem)) {
      if (std::find(names.begin(), names.end(), tensor.name) != names.end())
        outputs[tensor.name] = {StoredType::f64, tensor.shape, output_values(golden.exact, tensor.name)};
    }
    return outputs;
  }

  void write(const std::string& file, const Outputs& outputs) const {
    std::vector<StoredTensor> tensors;
    std::vector<std::vector<std::byte>> data(outputs.size());
    std::size_t n = 0;
    for (const auto& [name, output] : outputs) {
      data[n].resize(output.values.size() * bytes_of(output.type));
      if (output.type <= StoredType::f8e5m2) store_all(static_cast<Dtype>(output.type), output.values, data[n].data());
      tensors.push_back({name, output.type, output.shape, data[n]});
      ++n;
    }
    write_safetensors(folder_ + "/" + file, tensors);
  }

  ShellResult check(const std::string& options = "") const {
    return shell(ATTEST_BINARY " golden check " + kSmoke + " --outputs " + folder_ + options);
  }
  /// The victim's file is at fault, and no other.
  void expect_named(const std::string& what) const {
    const ShellResult result = check();
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_NE(result.output.find(folder_ + "/" + victim_ + ": got " + what + "\n"), std::string::npos) << result.output;
    EXPECT_NE(result.output.find("file     " + kSmoke + "/" + victim_), std::string::npos) << result.output;
    EXPECT_NE(result.output.find("forward            20           0           0           0           1"),
              std::string::npos)
        << result.output;
  }

  std::string folder_, victim_;
  Outputs right_;
};

TEST_F(GoldenOutputs, ThatAreRightPass) {
  const ShellResult result = check();
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_NE(result.output.find("forward            21           0           0           0           0"),
            std::string::npos)
      << result.output;
  EXPECT_NE(result.output.find("backward           21           0           0           0           0"),
            std::string::npos)
      << result.output;
}

TEST_F(GoldenOutputs, MayBeStoredInFloat32) {
  for (auto& [name, output] : right_) output.type = StoredType::f32;
  write(victim_, right_);
  EXPECT_EQ(check().exit_code, 0);
}

TEST_F(GoldenOutputs, AreHeldToTheBound) {
  right_.at("dk").values[9] += 0.01;
  write(victim_, right_);
  const ShellResult result = check();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.output.find("dk       1 of 56 elements off"), std::string::npos) << result.output;
  right_.at("dk").values[9] = std::nan("");
  write(victim_, right_);
  EXPECT_NE(check().output.find("dk       1 of 56 elements off"), std::string::npos);
}

TEST_F(GoldenOutputs, MissingFilesAreNamed) {
  fs::remove(folder_ + "/" + victim_);
  expect_named("no such file; one file for each case of the pack");
}

TEST_F(GoldenOutputs, ExtraFilesAreNamed) {
  fs::copy(folder_ + "/" + victim_, folder_ + "/stranger.safetensors");
  fs::create_directory(folder_ + "/folder");
  const ShellResult result = check();
  EXPECT_EQ(result.exit_code, 1);
  for (const char* name : {"/stranger.safetensors", "/folder"}) {
    EXPECT_NE(result.output.find("extra file " + folder_ + name + ": no case of the packs has that name\n"),
              std::string::npos)
        << result.output;
  }
}

TEST_F(GoldenOutputs, MissingTensorsAreNamed) {
  right_.erase("dq");
  write(victim_, right_);
  expect_named("no tensor dq; dq [5, 1, 8] of F32, F16, BF16 or F64");
}

TEST_F(GoldenOutputs, ExtraTensorsAreNamed) {
  right_["p"] = {StoredType::f32, {1}, {0}};
  write(victim_, right_);
  expect_named("tensor p; only o lse dq dk dv");
}

TEST_F(GoldenOutputs, MisshapenTensorsAreNamed) {
  right_.at("o").shape = {1, 5, 8};
  write(victim_, right_);
  expect_named("tensor o of F64 [1, 5, 8]; o [5, 1, 8] of F32, F16, BF16 or F64");
}

TEST_F(GoldenOutputs, TensorsOfOtherTypesAreNamed) {
  right_.at("lse").type = StoredType::i64;
  write(victim_, right_);
  expect_named("tensor lse of I64 [5, 1]; lse [5, 1] of F32, F16, BF16 or F64");
}

TEST_F(GoldenOutputs, FilesThatAreNoneAreNamed) {
  std::ofstream(folder_ + "/" + victim_) << "o = 1";
  expect_named("5 bytes; a safetensors file, which has at least 8 bytes");
  fs::remove(folder_ + "/" + victim_);
  fs::create_directory(folder_ + "/" + victim_);
  expect_named("no regular file; a safetensors file");
}

TEST_F(GoldenOutputs, NeedNoGradientsForTheForwardAlone) {
  const Pack pack = read_pack(kSmoke);
  for (const PackEntry& entry : pack.entries) {
    Outputs forward = outputs_of(load_case(pack, entry));
    std::erase_if(forward, [](const auto& item) { return item.first != "o" && item.first != "lse"; });
    write(entry.file.path, forward);
  }
  EXPECT_EQ(check(" --forward").exit_code, 0);
  EXPECT_EQ(check().exit_code, 1);
}

TEST_F(GoldenOutputs, AFolderThatIsNoneIsRefused) {
  const ShellResult result = shell(ATTEST_BINARY " golden check " + kSmoke + " --outputs missing");
  EXPECT_EQ(result.output, "attest: outputs: got 'missing'; a folder\n");
  EXPECT_EQ(result.exit_code, 2);
}

}  // namespace
}  // namespace attest::golden

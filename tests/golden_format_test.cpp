// SPDX-License-Identifier: Apache-2.0
// The pack format: what is written is read back, and a file that breaks the format anywhere is refused with one error
// that says where.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "golden/case_file.h"
#include "golden/case_tensors.h"
#include "golden/corpus.h"
#include "golden/lint.h"
#include "golden/pack.h"
#include "golden/profile.h"
#include "reference/problem/case_text.h"
#include "reference/problem/invalid_request.h"
#include "tests/support/safetensors_header.h"

namespace attest::golden {
namespace {

namespace fs = std::filesystem;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A case with made-up answers: the format does not care.
GoldenCase sample(const std::string& text = "q=3,2 k=4,1 heads=4/2 dim=3/2 bias=11qk dbias=on dropout=0.25@3 dlse=on") {
  GoldenCase golden;
  golden.problem = parse_case(text);
  golden.profile = profile_of(golden.problem).name;
  golden.flags = {"Bias", "Dropout"};
  golden.inputs = make_golden_inputs(golden.problem, "");
  for (const CaseTensor& tensor : case_tensors(golden.problem)) {
    std::int64_t count = 1;
    for (const std::int64_t extent : tensor.shape) count *= extent;
    std::vector<double> values(static_cast<std::size_t>(count), 0.5);
    if (tensor.name == "lse") values[0] = -kInfinity;
    if (tensor.name == "visible" || tensor.name == "keep") std::fill(values.begin(), values.end(), 1);
    if (tensor.is_bound() || tensor.type == StoredType::f64 || tensor.type == StoredType::boolean) {
      tensor.set(golden, values);
    }
  }
  return golden;
}

std::vector<std::byte> sample_bytes() { return write_case(sample()); }

/// The error of reading bytes; empty where they are read.
std::string error_of(std::vector<std::byte> bytes) {
  try {
    read_case(SafetensorsFile::parse("file", std::move(bytes)));
  } catch (const InvalidRequest& error) {
    return error.what();
  }
  return "";
}

std::vector<std::byte> with_header(const std::string& from, const std::string& to) {
  return testing_support::with_header(sample_bytes(), from, to);
}

TEST(GoldenCaseFile, IsReadBackAsItWasWritten) {
  for (const char* text : {"q=3 k=4 dim=2", "dtype=bf16 q=3,0 k=2,5 heads=4/2 dim=3/2 mask=b1qk:0.5 block=2x2:local=0",
                           "dtype=f8e4m3 q=2 k=3 dim=4 alibi=on window=1,0 causal=top-left direction=forward",
                           "q=3,2 k=4,1 heads=4/2 dim=3/2 bias=11qk dbias=on dropout=0.25@3 dlse=on"}) {
    const std::vector<std::byte> bytes = write_case(sample(text));
    const GoldenCase golden = read_case(SafetensorsFile::parse("file", bytes));
    EXPECT_EQ(print_case(golden.problem), print_case(parse_case(text)));
    EXPECT_EQ(write_case(golden), bytes) << text;
  }
}

TEST(GoldenCaseFile, SaysInItsMetadataWhatTheCaseTextSays) {
  const Metadata metadata =
      case_metadata(sample("dtype=bf16 q=3 k=5 dim=4 heads=4/2 window=2,-1 causal=top-left dropout=0.5@7+2"));
  EXPECT_EQ(metadata.at("scale"), "0.5");
  EXPECT_EQ(metadata.at("causal"), "top-left");
  EXPECT_EQ(metadata.at("window_align"), "top-left");
  EXPECT_EQ(metadata.at("window_right"), "-1");
  EXPECT_EQ(metadata.at("dropout_offset"), "2");
  EXPECT_EQ(metadata.at("out_dtype"), "bf16");
  EXPECT_EQ(metadata.at("heads_kv"), "2");
}

TEST(GoldenCaseFile, RefusesATruncatedFile) {
  std::vector<std::byte> bytes = sample_bytes();
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{200}, bytes.size() - 1}) {
    std::vector<std::byte> part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_NE(error_of(part), "") << size;
  }
  bytes.pop_back();
  EXPECT_NE(error_of(bytes).find("a range within the"), std::string::npos) << error_of(bytes);
}

TEST(GoldenCaseFile, RefusesAWrongHeaderLength) {
  std::vector<std::byte> bytes = sample_bytes();
  const std::uint64_t ten_gigabytes = 10'000'000'000;
  std::memcpy(bytes.data(), &ten_gigabytes, 8);
  EXPECT_NE(error_of(bytes).find("a header length of 10000000000 in a file of"), std::string::npos) << error_of(bytes);
  bytes = sample_bytes();
  const std::uint64_t shorter = testing_support::header_of(bytes).size() - 16;
  std::memcpy(bytes.data(), &shorter, 8);
  EXPECT_NE(error_of(bytes).find("not JSON"), std::string::npos) << error_of(bytes);
}

/// data_offsets of a tensor of the sample, as the header has them.
std::string offsets_of(const std::string& name) {
  const std::vector<std::byte> bytes = sample_bytes();
  const SafetensorsFile file = SafetensorsFile::parse("file", bytes);
  const StoredTensor* tensor = file.find(name);
  const auto first = tensor->data.data() - file.tensors().front().data.data();
  return "[" + std::to_string(first) + "," + std::to_string(first + static_cast<std::ptrdiff_t>(tensor->data.size())) +
         "]";
}

TEST(GoldenCaseFile, RefusesOffsetsThatOverlapOrLeaveTheFile) {
  EXPECT_NE(error_of(with_header(offsets_of("dv"), offsets_of("dk"))), "");
  const std::string beyond = error_of(with_header(offsets_of("o"), "[0,10000000000]"));
  EXPECT_NE(beyond.find("a range within the"), std::string::npos) << beyond;
}

TEST(GoldenCaseFile, RefusesTenGigabytesClaimedInAShape) {
  const std::string error = error_of(with_header("q=3,2 k=4,1", "q=30000,2 k=40000,1"));
  EXPECT_NE(error.find("tensor q of F32 [5, 4, 3]; q F32 [30002, 4, 3] for this case"), std::string::npos) << error;
}

TEST(GoldenCaseFile, RefusesANanOrNegativeBound) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), -1e-9, -kInfinity}) {
    GoldenCase golden = sample();
    golden.bounds.dk.data[3] = bad;
    const std::string error = error_of(write_case(golden));
    EXPECT_NE(error.find("bound.dk with"), std::string::npos) << error;
    EXPECT_NE(error.find("at element 3; bounds of 0 and more"), std::string::npos) << error;
  }
}

TEST(GoldenCaseFile, RefusesVersionsThatItDoesNotKnow) {
  EXPECT_EQ(error_of(with_header("\"format_version\":\"1\"", "\"format_version\":\"2\"")),
            "file: got format_version \"2\"; \"1\", the one that this reader knows");
  EXPECT_EQ(error_of(with_header("\"contract_version\":\"1\"", "\"contract_version\":\"9\"")),
            "file: got contract_version \"9\"; \"1\", the one that this reader knows");
  EXPECT_EQ(error_of(with_header("attest-golden", "attest-silver")),
            "file: got format \"attest-silver\"; \"attest-golden\"");
  EXPECT_EQ(error_of(with_header("\"generator_version\":\"2\"", "\"generator_version\":\"7\"")), "");  // may differ
}

TEST(GoldenCaseFile, RefusesMetadataThatContradictsTheCase) {
  EXPECT_NE(error_of(with_header("\"causal\":\"none\"", "\"causal\":\"top-left\"")).find("as the case has it"),
            std::string::npos);
  EXPECT_NE(error_of(with_header("\"causal\":\"none\"", "\"causal\":\"none\",\"page_size\":\"16\""))
                .find("got \"page_size\" in __metadata__"),
            std::string::npos);
  EXPECT_NE(error_of(with_header("\"profile\":\"f32\"", "\"profile\":\"f16\"")).find("\"f32\" for f32"),
            std::string::npos);
  EXPECT_NE(error_of(with_header("heads=4/2", "heads=4/3")).find("file: got a case with heads \"4/3\"; query heads"),
            std::string::npos);
}

TEST(GoldenCaseFile, RefusesMissingMisshapenAndForeignTensors) {
  EXPECT_NE(error_of(with_header("\"bound.o\"", "\"bound.p\"")).find("no tensor bound.o"), std::string::npos);
  EXPECT_NE(error_of(with_header("\"shape\":[5,4]", "\"shape\":[4,5]")).find("[4, 5]; "), std::string::npos);
  std::vector<double> one = {1};
  std::vector<StoredTensor> tensors;
  const SafetensorsFile file = SafetensorsFile::parse("file", sample_bytes());
  for (const StoredTensor& tensor : file.tensors()) tensors.push_back(tensor);
  tensors.push_back({"secret", StoredType::f64, {1}, std::as_bytes(std::span(one))});
  EXPECT_NE(error_of(serialise(tensors, file.metadata())).find("tensor \"secret\"; the tensors of this case alone"),
            std::string::npos);
}

TEST(GoldenCaseFile, RefusesOffsetsOfSequencesThatAreNotThoseOfTheCase) {
  std::vector<StoredTensor> tensors;
  const SafetensorsFile file = SafetensorsFile::parse("file", sample_bytes());
  const std::vector<std::int32_t> other = {0, 2, 5};
  for (StoredTensor tensor : file.tensors()) {
    if (tensor.name == "cu_q") tensor.data = std::as_bytes(std::span(other));
    tensors.push_back(tensor);
  }
  EXPECT_NE(error_of(serialise(tensors, file.metadata())).find("cu_q with other offsets"), std::string::npos);
}

TEST(GoldenCaseFile, RefusesAnExactOutputWithABound) {
  GoldenCase golden = sample();
  golden.exact_tensors = {"o"};
  EXPECT_NE(error_of(write_case(golden)).find("a bound of 0.5 around 0.5 in the exact o"), std::string::npos);
}

/// A pack of one case in a folder of its own.
class GoldenPack : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "golden_pack_" + testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    GoldenCase golden = sample();
    file_ = case_name(golden) + ".safetensors";
    std::vector<std::byte> bytes = write_case(golden);
    write_pack(folder_, "one", {{golden, {{file_, bytes}}}});
  }

  std::string error() const {
    try {
      const Pack pack = read_pack(folder_);
      for (const PackEntry& entry : pack.entries) load_case(pack, entry);
    } catch (const InvalidRequest& error) {
      return error.what();
    }
    return "";
  }
  /// Replaces a text in the index.
  void edit(const std::string& from, const std::string& to) {
    std::ifstream in(folder_ + "/index.json");
    std::string text{std::istreambuf_iterator<char>(in), {}};
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from << " in " << text;
    std::ofstream(folder_ + "/index.json") << text.replace(at, from.size(), to);
  }
  void expect_error(const std::string& part) const {
    EXPECT_NE(error().find(part), std::string::npos) << error();
    EXPECT_EQ(lint_pack(folder_).size() >= 1, true);
  }

  std::string folder_, file_;
};

TEST_F(GoldenPack, IsReadBack) {
  EXPECT_EQ(error(), "");
  const Pack pack = read_pack(folder_);
  EXPECT_EQ(pack.name, "one");
  EXPECT_EQ(pack.entries.at(0).flags, (std::vector<std::string>{"Bias", "Dropout"}));
}

TEST_F(GoldenPack, RefusesAFileWithAnotherHash) {
  std::fstream file(folder_ + "/" + file_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('\2');
  file.close();
  expect_error("got SHA-256 ");
}

TEST_F(GoldenPack, RefusesAFileOfAnotherSize) {
  std::ofstream(folder_ + "/" + file_, std::ios::app) << "x";
  expect_error("as the index says");
}

TEST_F(GoldenPack, RefusesAMissingFile) {
  fs::remove(folder_ + "/" + file_);
  expect_error("no regular file");
}

TEST_F(GoldenPack, RefusesAnIndexThatIsNotJson) {
  edit("{", "(");
  expect_error("not JSON");
}

TEST_F(GoldenPack, RefusesAnUnknownVersion) {
  edit("\"format_version\": 1", "\"format_version\": 3");
  expect_error("format_version 3; 1, the one that this reader knows");
}

TEST_F(GoldenPack, RefusesPathsOutsideItsFolder) {
  edit(file_, "../" + file_);
  expect_error("a path within the folder");
}

TEST_F(GoldenPack, RefusesFieldsThatAreMissingWrongOrForeign) {
  edit("\"bytes\":", "\"octets\":");
  expect_error("case 0 without \"bytes\"");
  edit("\"octets\":", "\"colour\":1,\"bytes\":");
  expect_error("case 0 with a field \"colour\"");
}

TEST_F(GoldenPack, RefusesAFlagThatTheIndexDoesNotDescribe) {
  edit("[\"Bias\"", "[\"Bees\"");
  expect_error("flag \"Bees\"");
}

TEST_F(GoldenPack, RefusesACaseThatTheIndexNamesOtherwise) {
  edit("heads=4/2", "heads=2/2");
  expect_error("another case than in the index");
}

TEST_F(GoldenPack, IsNotWrittenOverAnother) {
  EXPECT_THROW(write_pack(folder_, "two", {}), InvalidRequest);
  EXPECT_EQ(error(), "");
}

TEST_F(GoldenPack, LintNamesStrayFilesAndWhatTheCaseDoesNotMake) {
  std::ofstream(folder_ + "/notes.txt") << "x";
  std::string all;
  for (const std::string& breach : lint_pack(folder_)) all += breach + "\n";
  EXPECT_NE(all.find("notes.txt: not in the index"), std::string::npos) << all;
  EXPECT_NE(all.find("keep is wrong"), std::string::npos) << all;  // the sample's made-up mask
}

TEST(GoldenLint, NamesDuplicatesAndInputsThatAreNotOfTheCase) {
  const std::string folder = testing::TempDir() + "golden_lint_duplicates";
  fs::remove_all(folder);
  GoldenCase first = sample("q=3 k=4 dim=2"), second = sample("layout=thd q=3 k=4 dim=2"),
             third = sample("q=2 k=2 dim=2");
  third.inputs.k.data[0] = 17;
  const auto files = [](const GoldenCase& golden) {
    return std::vector<NewFile>{{case_name(golden) + ".safetensors", write_case(golden)}};
  };
  write_pack(folder, "twice",
             {{first, files(first)}, {second, files(second)}, {third, files(third)}, {first, files(first)}});
  std::string all;
  for (const std::string& breach : lint_pack(folder)) all += breach + "\n";
  EXPECT_NE(all.find("the same inputs and answers as"), std::string::npos) << all;
  EXPECT_NE(all.find("listed twice"), std::string::npos) << all;
  EXPECT_NE(all.find("a second case 'q=3 k=4 dim=2'"), std::string::npos) << all;
  EXPECT_NE(all.find("k is not what the case text makes"), std::string::npos) << all;
}

}  // namespace
}  // namespace attest::golden

// SPDX-License-Identifier: Apache-2.0
// Corrupt packs, as a user meets them: each gives one line that names the file, what it has and what is allowed, exit code 2,
// and costs no memory, whatever the file claims.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "golden/case_file.h"
#include "golden/pack.h"
#include "reference/problem/case_text.h"
#include "reference/problem/invalid_request.h"
#include "reference/problem/safetensors.h"
#include "tests/support/peak_memory.h"
#include "tests/support/safetensors_header.h"
#include "tests/support/shell.h"

namespace attest::golden {
namespace {

namespace fs = std::filesystem;
using testing_support::file_text;
using testing_support::header_of;
using testing_support::shell;

/// The plain case of the smoke pack, 5 x 7 tokens of one head, D = 8.
const std::string kFile = "q-5-k-7-dim-8-f52fd4a0.safetensors";

/// A folder with that case alone, whose file or index a test then spoils.
class CorruptPack : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "golden_corrupt_" + testing::UnitTest::GetInstance()->current_test_info()->name();
    path_ = folder_ + "/" + kFile;
    const Pack smoke = read_pack(ATTEST_SOURCE_DIR "/golden/packs/smoke");
    const auto entry = std::find_if(smoke.entries.begin(), smoke.entries.end(),
                                    [](const PackEntry& candidate) { return candidate.text == "q=5 k=7 dim=8"; });
    golden_ = load_case(smoke, *entry);
    bytes_ = load_file(smoke, entry->file);
    write(bytes_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// The pack with these bytes as its case: size and hash of the index are theirs, so that the file itself is judged.
  void write(const std::vector<std::byte>& bytes) {
    fs::remove_all(folder_);
    write_pack(folder_, "one", {{golden_, {{kFile, bytes}}}});
  }
  void write_length(std::uint64_t length) {
    std::memcpy(bytes_.data(), &length, 8);
    write(bytes_);
  }
  void edit_header(const std::string& from, const std::string& to) { write(testing_support::with_header(bytes_, from, to)); }
  void edit_index(const std::string& from, const std::string& to) {
    std::string text = file_text(folder_ + "/index.json");
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from << " in " << text;
    std::ofstream(folder_ + "/index.json") << text.replace(at, from.size(), to);
  }
  /// "data_offsets":[0,140] of a tensor, as the header has them.
  std::string offsets_of(const std::string& tensor) const {
    const std::string text = header_of(bytes_);
    const std::size_t at = text.find("\"" + tensor + "\":{");
    const std::size_t first = text.find("[", text.find("data_offsets", at));
    return text.substr(first, text.find("]", first) + 1 - first);
  }

  /// check, show (where the file alone is at fault) and lint all say `what` of the file or index.
  void expect_refused(const std::string& what, bool by_show = true) const { expect_refused(path_, what, by_show); }
  void expect_index_refused(const std::string& what) const { expect_refused(folder_ + "/index.json", what, false); }
  void expect_refused(const std::string& named, const std::string& what, bool by_show) const {
    const std::string attest = ATTEST_BINARY " golden ", line = named + ": got " + what + "\n";
    const auto check = shell(attest + "check " + folder_ + " --kernel flash");
    EXPECT_EQ(check.output, "attest: " + line);
    EXPECT_EQ(check.exit_code, 2);
    if (by_show) {
      const auto show = shell(attest + "show " + path_);
      EXPECT_EQ(show.output, "attest: " + line);
      EXPECT_EQ(show.exit_code, 2);
    }
    const auto lint = shell(attest + "lint " + folder_);
    EXPECT_EQ(lint.output, line);
    EXPECT_EQ(lint.exit_code, 1);
  }

  std::string folder_, path_;
  GoldenCase golden_;
  std::vector<std::byte> bytes_;
};

TEST_F(CorruptPack, IsFineBeforeItIsSpoilt) {
  const auto check = shell(ATTEST_BINARY " golden check " + folder_ + " --kernel flash");
  EXPECT_EQ(check.exit_code, 0) << check.output;
}

TEST_F(CorruptPack, Empty) {
  write({});
  expect_refused("0 bytes; a safetensors file, which has at least 8 bytes");
}

TEST_F(CorruptPack, TruncatedInItsHeader) {
  const std::string length = std::to_string(header_of(bytes_).size());
  bytes_.resize(200);
  write(bytes_);
  expect_refused("a header length of " + length + " in a file of 200 bytes; at most 192");
}

TEST_F(CorruptPack, TruncatedInItsData) {
  const std::size_t data = bytes_.size() - 8 - header_of(bytes_).size();
  bytes_.pop_back();
  write(bytes_);
  expect_refused("tensor \"visible\" at bytes " + std::to_string(data - 35) + " to " + std::to_string(data) +
                 "; a range within the " + std::to_string(data - 1) + " bytes of data");
}

TEST_F(CorruptPack, HeaderLengthOf10GB) {
  write_length(10'000'000'000);
  const std::string size = std::to_string(bytes_.size()), most = std::to_string(bytes_.size() - 8);
  expect_refused("a header length of 10000000000 in a file of " + size + " bytes; at most " + most);
}

TEST_F(CorruptPack, HeaderLengthPastTheFile) {
  write_length(bytes_.size());
  const std::string size = std::to_string(bytes_.size()), most = std::to_string(bytes_.size() - 8);
  expect_refused("a header length of " + size + " in a file of " + size + " bytes; at most " + most);
}

TEST_F(CorruptPack, HeaderLengthTooShort) {
  const std::size_t length = header_of(bytes_).find_last_of('}') - 7;
  write_length(length);
  expect_refused("a header of " + std::to_string(length) + " bytes that is not JSON; a JSON object of tensors");
}

TEST_F(CorruptPack, HeaderLengthTooLong) {
  const std::size_t length = header_of(bytes_).size() + 8;
  write_length(length);
  expect_refused("a header of " + std::to_string(length) + " bytes that is not JSON; a JSON object of tensors");
}

TEST_F(CorruptPack, OverlappingTensors) {
  const std::string dk = offsets_of("dk");
  edit_header(offsets_of("dv"), dk);
  const std::string begin = dk.substr(1, dk.find(',') - 1);
  expect_refused("tensor \"dv\" at byte " + begin + ", inside the one before it; tensors that do not overlap");
}

TEST_F(CorruptPack, OffsetsPastTheData) {
  const std::string data = std::to_string(bytes_.size() - 8 - header_of(bytes_).size());
  edit_header(offsets_of("o"), "[0,10000000000]");
  expect_refused("tensor \"o\" at bytes 0 to 10000000000; a range within the " + data + " bytes of data");
}

TEST_F(CorruptPack, OffsetsTheWrongWayRound) {
  const std::string data = std::to_string(bytes_.size() - 8 - header_of(bytes_).size());
  edit_header(offsets_of("o"), "[800,480]");
  expect_refused("tensor \"o\" at bytes 800 to 480; a range within the " + data + " bytes of data");
}

TEST_F(CorruptPack, NegativeOffsets) {
  edit_header(offsets_of("o"), "[-320,0]");
  expect_refused("tensor \"o\" with a wrong data_offsets; a list of integers, 0 to 2^63 - 1");
}

TEST_F(CorruptPack, ShapeOf10GB) {
  const std::string o = offsets_of("o");
  edit_header("\"shape\":[5,1,8]},\"q\"", "\"shape\":[5,1,250000000]},\"q\"");
  const std::size_t comma = o.find(',');
  expect_refused("tensor \"o\" at bytes " + o.substr(1, comma - 1) + " to " +
                 o.substr(comma + 1, o.size() - comma - 2) + "; 10000000000 bytes for F64 [5, 1, 250000000]");
}

TEST_F(CorruptPack, CaseOf10GB) {
  edit_header("\"case\":\"q=5 k=7 dim=8\"", "\"case\":\"q=50000 k=70000 dim=8\"");
  expect_refused("tensor q of F32 [5, 1, 8]; q F32 [50000, 1, 8] for this case");
}

TEST_F(CorruptPack, NanInABound) {
  golden_.bounds.dk.data[3] = std::numeric_limits<double>::quiet_NaN();
  write(write_case(golden_));
  expect_refused("bound.dk with nan at element 3; bounds of 0 and more (infinity: none can be stated), never NaN");
}

TEST_F(CorruptPack, NegativeBound) {
  golden_.bounds.o.data[0] = -0.5;
  write(write_case(golden_));
  expect_refused("bound.o with -0.5 at element 0; bounds of 0 and more (infinity: none can be stated), never NaN");
}

TEST_F(CorruptPack, UnknownVersions) {
  edit_header("\"format_version\":\"1\"", "\"format_version\":\"2\"");
  expect_refused("format_version \"2\"; \"1\", the one that this reader knows");
  edit_header("\"contract_version\":\"1\"", "\"contract_version\":\"2\"");
  expect_refused("contract_version \"2\"; \"1\", the one that this reader knows");
  edit_header("attest-golden", "no-such-format");
  expect_refused("format \"no-such-format\"; \"attest-golden\"");
}

TEST_F(CorruptPack, AnotherHash) {
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('\0');
  file.close();
  const std::string text = file_text(folder_ + "/index.json");
  const std::size_t at = text.find("\"sha256\":\"") + 10;
  const std::string stated = text.substr(at, 64);
  const std::string found = shell("sha256sum " + path_).output.substr(0, 64);
  EXPECT_NE(found, stated);
  expect_refused("SHA-256 " + found + "; " + stated + ", as the index says", false);
}

TEST_F(CorruptPack, AnotherSize) {
  fs::resize_file(path_, bytes_.size() - 1);
  expect_refused(std::to_string(bytes_.size() - 1) + " bytes; " + std::to_string(bytes_.size()) + ", as the index says",
                 false);
}

TEST_F(CorruptPack, FileOf10GB) {
  fs::resize_file(path_, 10'000'000'000);  // a hole on disk
  expect_refused("10000000000 bytes; at most 268435456");
}

TEST_F(CorruptPack, IndexOf10GB) {
  fs::resize_file(folder_ + "/index.json", 10'000'000'000);
  expect_index_refused("10000000000 bytes; at most 268435456");
}

TEST_F(CorruptPack, IndexThatIsGone) {
  fs::remove(folder_ + "/index.json");
  expect_index_refused("no regular file; a file of a pack");
}

TEST_F(CorruptPack, IndexTruncated) {
  const std::uintmax_t size = fs::file_size(folder_ + "/index.json") - 9;
  fs::resize_file(folder_ + "/index.json", size);
  expect_index_refused("a text of " + std::to_string(size) + " bytes that is not JSON; the index of a pack");
}

TEST_F(CorruptPack, IndexNestedDeeply) {
  std::ofstream(folder_ + "/index.json") << std::string(1000000, '[');
  expect_index_refused("a text of 1000000 bytes that is not JSON; the index of a pack");
}

TEST_F(CorruptPack, IndexThatClaims10GB) {
  const std::string size = std::to_string(bytes_.size());
  edit_index("\"bytes\":" + size, "\"bytes\":10000000000");
  expect_refused(size + " bytes; 10000000000, as the index says", false);
}

TEST_F(CorruptPack, IndexWithWrongNumbers) {
  const std::string size = std::to_string(bytes_.size());
  edit_index("\"bytes\":" + size, "\"bytes\":-1");
  expect_index_refused("case 0 with a wrong \"bytes\"; a whole number");
  edit_index("\"bytes\":-1", "\"bytes\":1e10");
  expect_index_refused("case 0 with a wrong \"bytes\"; a whole number");
  edit_index("\"bytes\":1e10", "\"bytes\":NaN");
  expect_index_refused("a text of " + std::to_string(fs::file_size(folder_ + "/index.json")) +
                       " bytes that is not JSON; the index of a pack");
}

TEST_F(CorruptPack, IndexOfUnknownVersions) {
  edit_index("\"format_version\": 1", "\"format_version\": 2");
  expect_index_refused("format_version 2; 1, the one that this reader knows");
  edit_index("\"format_version\": 2", "\"format_version\": 1");
  edit_index("\"contract_version\": 1", "\"contract_version\": 2");
  expect_index_refused("contract_version 2; 1, the one that this reader knows");
  edit_index("attest-golden", "no-such-format");
  expect_index_refused("format \"no-such-format\"; \"attest-golden\"");
}

TEST_F(CorruptPack, IndexThatLeadsElsewhere) {
  edit_index(kFile, "../" + kFile);
  expect_index_refused("case 0 with file \"../" + kFile + "\"; a path within the folder");
}

TEST_F(CorruptPack, IndexWithAHashThatIsNone) {
  edit_index("\"sha256\":\"", "\"sha256\":\"0");
  const std::string text = file_text(folder_ + "/index.json");
  const std::string hash = text.substr(text.find("\"sha256\":\"") + 10, 65);
  expect_index_refused("case 0 with sha256 \"" + hash + "\"; 64 hexadecimal digits, a to f small");
}

TEST_F(CorruptPack, IndexWithAFieldTwice) {
  edit_index("\"profile\":", "\"profile\":\"f16\",\"profile\":");
  expect_index_refused("\"profile\" twice in one object; each name once");
}

TEST_F(CorruptPack, IndexWithoutWhatItNeeds) {
  edit_index("\"profile\":", "\"profil\":");
  expect_index_refused("case 0 without \"profile\"; a string");
  edit_index("\"profil\":", "\"colour\":1,\"profile\":");
  expect_index_refused("case 0 with a field \"colour\"; the fields of the format");
}

TEST_F(CorruptPack, IndexOfAnotherCase) {
  edit_index("\"case\":\"q=5 k=7 dim=8\"", "\"case\":\"q=5 k=7 dim=9\"");
  expect_refused("another case than in the index; the case that the index lists", false);
}

TEST_F(CorruptPack, LongAndUnprintableTextsAreCutShort) {
  edit_index("attest-golden", std::string("\\n\\u0007") + std::string(100000, 'x'));
  expect_index_refused("format \"??" + std::string(118, 'x') + "...\"; \"attest-golden\"");
}

/// A few hundred bytes must not make the reader take gigabytes: 2^31 pages, a million sequences.
TEST_F(CorruptPack, ClaimsCostNoMemory) {
  for (const char* text : {"q=1 k=2147483647 page=1 direction=forward dim=8", "batch=1048576 q=2147483647 k=1 dim=8",
                           "q=2147483647 k=2147483647 heads=1048576 dim=65536"}) {
    GoldenCase claimed;
    claimed.problem = parse_case(text);
    claimed.profile = "f32";
    claimed.flags = {"Plain"};
    const std::vector<std::byte> bytes = serialise({}, case_metadata(claimed));
    std::string error;
    const std::int64_t peak = peak_memory_of([&] {
      try {
        read_case(SafetensorsFile::parse("file", bytes));
      } catch (const InvalidRequest& refused) {
        error = refused.what();
      }
    });
    EXPECT_NE(error.find("file: got no tensor q; q F32 ["), std::string::npos) << text << ": " << error;
    EXPECT_LT(peak, 100 << 20) << text;
  }
}

}  // namespace
}  // namespace attest::golden

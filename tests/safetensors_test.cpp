// SPDX-License-Identifier: Apache-2.0
// The safetensors reader on bytes written by hand, on every kind of broken file, and on what the writer wrote; and
// captured inputs (fill=file:PATH) in each layout.
#include "reference/problem/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "reference/problem/dtype.h"
#include "reference/problem/inputs.h"
#include "reference/problem/invalid_request.h"

namespace attest {
namespace {

using Bytes = std::vector<std::byte>;

Bytes file_bytes(std::string_view header, std::string_view data, std::uint64_t length) {
  Bytes bytes(8 + header.size() + data.size());
  std::memcpy(bytes.data(), &length, 8);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  std::memcpy(bytes.data() + 8 + header.size(), data.data(), data.size());
  return bytes;
}

Bytes file_bytes(std::string_view header, std::string_view data) { return file_bytes(header, data, header.size()); }

/// The text of the refusal; fails the test if there is none.
std::string refusal(Bytes bytes) {
  try {
    SafetensorsFile::parse("hostile.safetensors", std::move(bytes));
  } catch (const InvalidRequest& error) {
    EXPECT_EQ(error.field(), "hostile.safetensors");
    return error.what();
  }
  ADD_FAILURE() << "not refused";
  return "";
}

void expect_refused(std::string_view header, std::string_view data, const std::string& part) {
  EXPECT_NE(refusal(file_bytes(header, data)).find(part), std::string::npos) << header << '\n'
                                                                             << refusal(file_bytes(header, data));
}

StoredTensor stored(const std::string& name, StoredType type, std::vector<std::int64_t> shape, const Bytes& data) {
  return {name, type, std::move(shape), data};
}

/// Every byte of a small file written out: length 144, header padded with spaces, [[1, 2, 3]] in float32, [-1, 0.5] in
/// float16.
TEST(Safetensors, ReadsBytesWrittenByHand) {
  const std::string text = std::string("\x90\0\0\0\0\0\0\0", 8) +
                           R"({"__metadata__":{"by":"hand"},"b":{"dtype":"F32","shape":[1,3],"data_offsets":[0,12]},)"
                           R"("a":{"dtype":"F16","shape":[2],"data_offsets":[12,16]}}   )" +
                           std::string("\0\0\x80\x3F\0\0\0\x40\0\0\x40\x40\0\xBC\0\x38", 16);
  ASSERT_EQ(text.size(), 8u + 144u + 16u);
  Bytes bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  const SafetensorsFile file = SafetensorsFile::parse("hand", bytes);
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.metadata(), (Metadata{{"by", "hand"}}));
  ASSERT_NE(file.find("a"), nullptr);
  EXPECT_EQ(describe(*file.find("a")), "F16 [2]");
  EXPECT_EQ(values_of(*file.find("a"), "hand"), (std::vector<double>{-1, 0.5}));
  EXPECT_EQ(describe(*file.find("b")), "F32 [1, 3]");
  EXPECT_EQ(values_of(*file.find("b"), "hand"), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(file.find("c"), nullptr);
}

TEST(Safetensors, ReadsEveryType) {
  const std::string header =
      R"({"a":{"dtype":"F64","shape":[],"data_offsets":[0,8]},"b":{"dtype":"I64","shape":[1],"data_offsets":[8,16]},)"
      R"("c":{"dtype":"I32","shape":[1],"data_offsets":[16,20]},"d":{"dtype":"BF16","shape":[1],"data_offsets":[20,22]},)"
      R"("e":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[22,23]},"f":{"dtype":"F8_E5M2","shape":[1],"data_offsets":[23,24]},)"
      R"("g":{"dtype":"U8","shape":[2],"data_offsets":[24,26]},"h":{"dtype":"BOOL","shape":[2],"data_offsets":[26,28]},)"
      R"("none":{"dtype":"F32","shape":[3,0],"data_offsets":[28,28]}})";
  const std::string data(
      "\0\0\0\0\0\0\xF0\x3F"
      "\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF"
      "\0\0\0\x80"
      "\xC0\x3F"
      "\x7E"
      "\x7B"
      "\xFF\x02"
      "\x00\x01",
      28);
  const SafetensorsFile file = SafetensorsFile::parse("types", file_bytes(header, data));
  const auto values = [&](const char* name) { return values_of(*file.find(name), "types"); };
  EXPECT_EQ(values("a"), std::vector<double>{1});
  EXPECT_EQ(values("b"), std::vector<double>{-2});
  EXPECT_EQ(values("c"), std::vector<double>{-2147483648.0});
  EXPECT_EQ(values("d"), std::vector<double>{1.5});
  EXPECT_EQ(values("e"), std::vector<double>{448});
  EXPECT_EQ(values("f"), std::vector<double>{57344});
  EXPECT_EQ(values("g"), (std::vector<double>{255, 2}));
  EXPECT_EQ(values("h"), (std::vector<double>{0, 1}));
  EXPECT_TRUE(values("none").empty());
}

TEST(Safetensors, RefusesIntegersThatAreNoExactValues) {
  const Bytes large = file_bytes(R"({"n":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})",
                                 std::string_view("\1\0\0\0\0\0\x20\0", 8));
  EXPECT_THROW(values_of(*SafetensorsFile::parse("x", large).find("n"), "x"), InvalidRequest);
  const Bytes two = file_bytes(R"({"n":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})", "\2");
  EXPECT_THROW(values_of(*SafetensorsFile::parse("x", two).find("n"), "x"), InvalidRequest);
}

TEST(Safetensors, RefusesTruncatedFilesAndWrongHeaderLengths) {
  const std::string header = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  const Bytes good = file_bytes(header, "1234");
  ASSERT_EQ(SafetensorsFile::parse("good", good).tensors().size(), 1u);
  for (std::size_t size = 0; size < good.size(); ++size)
    refusal(Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)));
  for (const std::uint64_t length :
       {std::uint64_t{0}, std::uint64_t{1}, header.size() - 1, header.size() + 1, header.size() + 5,
        std::uint64_t{1} << 31, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    refusal(file_bytes(header, "1234", length));
  }
}

TEST(Safetensors, RefusesHostileHeaders) {
  for (const char* header :
       {"", "[]", "null", "{", "{\"a\":", "{]", "nonsense", "{\"a\":1,}", "\xFF\xFE", "{\"\xFF\":1}"}) {
    refusal(file_bytes(header, ""));
  }
  refusal(file_bytes(std::string(100'000, '['), ""));
  expect_refused(R"({"a":3})", "", "exactly dtype");
  expect_refused(R"({"a":{}})", "", "exactly dtype");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":1}})", "1", "exactly dtype");
  expect_refused(R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}})", "1", "dtype \"F4\"");
  expect_refused(R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,1]}})", "1", "dtype");
  expect_refused(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", "1", "wrong shape");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", "1", "wrong shape");
  expect_refused(R"({"a":{"dtype":"U8","shape":"1","data_offsets":[0,1]}})", "1", "wrong shape");
  expect_refused(R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]}})", "1", "wrong shape");
  expect_refused(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,1]}})", "1",
                 "fewer than 2^63");
  expect_refused(R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", "", "fewer than 2^63");
  expect_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "1234", "8 bytes for F32 [2]");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", "1", "1 data_offsets");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}})", "1", "wrong data_offsets");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", "1", "within the 1 bytes");
  expect_refused(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "1", "within the 1 bytes");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[9223372036854775806,9223372036854775807]}})", "1",
                 "within");
  expect_refused(R"({"__metadata__":{"a":1}})", "", "no string");
  expect_refused(R"({"__metadata__":[]})", "", "no object");
}

TEST(Safetensors, RefusesTensorsThatShareSkipOrMisalignBytes) {
  expect_refused(
      R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
      "123", "overlap");
  expect_refused(
      R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
      "12", "overlap");
  expect_refused(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
      "123", "holes");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "12", "after the last");
  expect_refused(R"({})", "1", "after the last");
  expect_refused(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
      "12345", "multiple of 4");
}

TEST(Safetensors, RefusesDuplicateNames) {
  expect_refused(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
      "1", "\"a\" twice");
  expect_refused(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "1", "\"dtype\" twice");
  expect_refused(R"({"__metadata__":{"x":"1","x":"2"}})", "", "\"x\" twice");
}

TEST(Safetensors, RefusesPathsThatAreNoFiles) {
  EXPECT_THROW(SafetensorsFile::read("no/such/file.safetensors"), InvalidRequest);
  EXPECT_THROW(SafetensorsFile::read("."), InvalidRequest);
  EXPECT_THROW(write_safetensors("no/such/folder/file.safetensors", {}), InvalidRequest);
}

TEST(Safetensors, WriterSortsAlignsAndRepeatsItsBytes) {
  const Bytes one(1, std::byte{7}), eight(8, std::byte{1});
  const auto a = stored("a", StoredType::u8, {1}, one);
  const auto b = stored("b", StoredType::f64, {1}, eight);
  const auto c = stored("c", StoredType::f32, {2, 1}, eight);
  const Bytes bytes = serialise({a, b, c}, {{"k", "v"}});
  EXPECT_EQ(bytes, serialise({c, a, b}, {{"k", "v"}}));
  const SafetensorsFile file = SafetensorsFile::parse("written", bytes);
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.tensors()[0].name, "b");
  EXPECT_EQ(file.tensors()[1].name, "c");
  EXPECT_EQ(file.tensors()[2].name, "a");
  EXPECT_EQ(file.metadata(), (Metadata{{"k", "v"}}));
  EXPECT_EQ((bytes.size() - 17) % 8, 0u) << "the data starts at a multiple of 8";
  EXPECT_THROW(serialise({a, a}), InvalidRequest);
  EXPECT_THROW(serialise({stored("a", StoredType::f32, {1}, one)}), InvalidRequest);
  EXPECT_THROW(serialise({stored("__metadata__", StoredType::u8, {1}, one)}), InvalidRequest);
}

/// Files of captured inputs.
class Captured : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ =
        (std::filesystem::temp_directory_path() /
         (std::string("attest_") + ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".safetensors"))
            .string();
  }
  void TearDown() override { std::filesystem::remove(path_); }

  void add(const std::string& name, std::vector<std::int64_t> shape, const std::vector<double>& values, Dtype type) {
    Bytes& bytes = storage_[name];
    bytes.assign(values.size() * static_cast<std::size_t>(format_of(type).bytes), std::byte{0});
    store_all(type, values, bytes.data());
    tensors_.push_back(stored(name, static_cast<StoredType>(type), std::move(shape), bytes));
  }

  /// 1, 2, 3, ... as element values, so that each says where it came from.
  void add_counted(const std::string& name, const std::vector<std::int64_t>& shape, Dtype type = Dtype::f32) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    std::vector<double> values;
    for (std::int64_t n = 1; n <= count; ++n) values.push_back(static_cast<double>(n));
    add(name, shape, values, type);
  }

  Inputs read(Problem problem) {
    write_safetensors(path_, tensors_);
    problem.fill.family = "file";
    problem.fill.path = path_;
    return make_inputs(problem);
  }

  void expect_refused(const Problem& problem, const std::string& part) {
    try {
      read(problem);
      ADD_FAILURE() << "not refused";
    } catch (const InvalidRequest& error) {
      EXPECT_EQ(error.field(), path_);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }

  std::string path_;
  std::map<std::string, Bytes> storage_;
  std::vector<StoredTensor> tensors_;
};

Problem small(Layout layout) {
  Problem problem;
  problem.layout = layout;
  problem.seq_q = {1, 2};
  problem.seq_k = {3, 2};
  problem.heads_q = 2;
  problem.dim = 2;
  problem.dim_v = 1;
  problem.direction = Direction::forward;
  return problem;
}

TEST_F(Captured, PaddedRightAndLeftTakeTheTokensRows) {
  add_counted("q", {2, 2, 2, 2});
  add_counted("k", {2, 3, 1, 2}, Dtype::f16);
  add_counted("v", {2, 3, 1, 1}, Dtype::f64);
  Problem problem = small(Layout::bhsd);
  const Inputs right = read(problem);
  EXPECT_EQ(right.q.data, (std::vector<double>{1, 2, 3, 4, 9, 10, 11, 12, 13, 14, 15, 16}));
  EXPECT_EQ(right.k.data, (std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(right.v.data, (std::vector<double>{1, 2, 3, 4, 5}));
  problem.pad = PadSide::left;
  const Inputs left = read(problem);
  EXPECT_EQ(left.q.data, (std::vector<double>{5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}));
  EXPECT_EQ(left.v.data, (std::vector<double>{1, 2, 3, 5, 6}));
  EXPECT_TRUE(left.d_o.empty());
}

TEST_F(Captured, PackedWithGradients) {
  add_counted("q", {3, 2, 2});
  add_counted("k", {5, 1, 2});
  add_counted("v", {5, 1, 1});
  add_counted("do", {3, 2, 1});
  add_counted("dlse", {2, 3});
  add_counted("bias", {1, 1, 2, 3});
  Problem problem = small(Layout::thd);
  problem.direction = Direction::both;
  problem.d_lse = true;
  problem.bias = Bias{};
  const Inputs inputs = read(problem);
  EXPECT_EQ(inputs.q.at(2, 1, 1), 12);
  EXPECT_EQ(inputs.d_o.data, (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(inputs.d_lse, (std::vector<double>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(inputs.bias.at(1, 1, 1, 0), 4);
}

TEST_F(Captured, GeneratesTheGradientsThatTheFileLacks) {
  add_counted("q", {3, 2, 2});
  add_counted("k", {5, 1, 2});
  add_counted("v", {5, 1, 1});
  Problem problem = small(Layout::thd);
  problem.direction = Direction::both;
  const Inputs inputs = read(problem);
  problem.fill = {};
  EXPECT_EQ(inputs.d_o.data, make_inputs(problem).d_o.data);
}

TEST_F(Captured, NamesTheTensorAndBothShapes) {
  add_counted("q", {3, 2, 2});
  Problem problem = small(Layout::thd);
  expect_refused(problem, "no tensor k; a tensor k of shape [5, 1, 2]");
  add_counted("k", {5, 2, 2});
  expect_refused(problem, "tensor k of F32 [5, 2, 2]; a tensor k of shape [5, 1, 2]");
}

TEST_F(Captured, RefusesValuesThatTheTypeDoesNotHold) {
  add("q", {3, 2, 2}, std::vector<double>(12, 0.1), Dtype::f32);
  add_counted("k", {5, 1, 2});
  add_counted("v", {5, 1, 1});
  Problem problem = small(Layout::thd);
  EXPECT_EQ(read(problem).q.at(0, 0, 0), static_cast<double>(0.1f));
  problem.dtype = Dtype::bf16;
  expect_refused(problem, "tensor q with 0.1");
}

TEST_F(Captured, KeepsNanAndInfinity) {
  std::vector<double> q(12, 1.0);
  q[0] = std::numeric_limits<double>::quiet_NaN();
  q[1] = -std::numeric_limits<double>::infinity();
  add("q", {3, 2, 2}, q, Dtype::f16);
  add_counted("k", {5, 1, 2});
  add_counted("v", {5, 1, 1});
  const Inputs inputs = read(small(Layout::thd));
  EXPECT_TRUE(std::isnan(inputs.q.data[0]));
  EXPECT_EQ(inputs.q.data[1], -std::numeric_limits<double>::infinity());
}

TEST_F(Captured, RefusesUnequalValuesAlongStrideZero) {
  add_counted("q", {3, 2, 2});
  add_counted("k", {5, 1, 2});
  add("v", {5, 1, 1}, std::vector<double>(5, 2.0), Dtype::f32);
  Problem problem = small(Layout::thd);
  problem.strides[static_cast<std::size_t>(TensorId::v)] = Strides{0, 0, 1};
  EXPECT_EQ(read(problem).v.data, std::vector<double>(5, 2.0));
  problem.strides[static_cast<std::size_t>(TensorId::q)] = Strides{0, 2, 0};
  expect_refused(problem, "tensor q with other values at [b=0, i=0, h=1]");
}

}  // namespace
}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// What packs are made of: stored bounds, hashes, the protobuf encoding, corpora and flags.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "golden/corpus.h"
#include "golden/flags.h"
#include "golden/profile.h"
#include "golden/protobuf.h"
#include "golden/sha256.h"
#include "reference/problem/invalid_request.h"

namespace attest::golden {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(GoldenBound, IsRoundedUpToEightBits) {
  EXPECT_EQ(stored_bound(0, 0), 0);
  EXPECT_EQ(stored_bound(1, kInfinity), kInfinity);
  EXPECT_EQ(stored_bound(0, 1), 1);
  EXPECT_EQ(stored_bound(0, 1 + 1e-9), 1 + 0x1p-7);
  EXPECT_EQ(stored_bound(0, 1e-60), 0x1p-149);
  EXPECT_EQ(stored_bound(0, 3.4028234e38), kInfinity);  // rounded up it is no float32 any more
  EXPECT_THROW(stored_bound(0, std::nan("")), std::logic_error);
  EXPECT_THROW(stored_bound(0, -1), std::logic_error);
  for (double bound = 1e-44; bound < 1e38; bound *= 1.37) {
    const double stored = stored_bound(0, bound);
    EXPECT_GE(stored, bound);
    EXPECT_LE(stored, bound * (1 + 0x1p-7) + 0x1p-149);
    EXPECT_EQ(static_cast<double>(static_cast<float>(stored)), stored);
  }
}

TEST(GoldenSha256, GivesThePublishedDigests) {  // FIPS 180-4, examples
  EXPECT_EQ(sha256(std::string_view("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256(std::string_view("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(GoldenProtobuf, WritesTheWireFormat) {  // protobuf.dev, "Encoding": 150 in field 1, "testing" in field 2
  EXPECT_EQ(ProtobufMessage().integer(1, 150).bytes(), "\x08\x96\x01");
  EXPECT_EQ(ProtobufMessage().text(2, "testing").bytes(), "\x12\x07testing");
  EXPECT_EQ(ProtobufMessage().message(3, ProtobufMessage().integer(1, 150)).bytes(), "\x1a\x03\x08\x96\x01");
  EXPECT_EQ(ProtobufMessage().integer(1, -1).bytes(), "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
}

std::string corpus_error(const std::string& text) {
  const std::string path = testing::TempDir() + "golden_corpus.txt";
  std::ofstream(path) << text;
  try {
    for (const GoldenRequest& request : read_golden_corpus(path)) make_golden_inputs(request.problem, request.set);
  } catch (const InvalidRequest& error) {
    return error.what();
  }
  return "";
}

TEST(GoldenCorpus, CarriesFlagsAndSetElements) {
  const std::string path = testing::TempDir() + "golden_corpus_good.txt";
  std::ofstream(path)
      << "# flags: Plain Lse\n# exact: o\n# set: k[1,0,1]=nan q[0,0,0]=-2.5\nq=2 k=2 dim=2 # odd\n# exact:\nq=3\n";
  const std::vector<GoldenRequest> requests = read_golden_corpus(path);
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].flags, (std::vector<std::string>{"Plain", "Lse"}));
  EXPECT_EQ(requests[0].exact_tensors, (std::vector<std::string>{"o"}));
  EXPECT_EQ(requests[1].set, "");
  EXPECT_TRUE(requests[1].exact_tensors.empty());
  const Inputs inputs = make_golden_inputs(requests[0].problem, requests[0].set);
  EXPECT_TRUE(std::isnan(inputs.k.at(1, 0, 1)));
  EXPECT_EQ(inputs.q.at(0, 0, 0), -2.5);
}

TEST(GoldenCorpus, NamesTheLineOfWhatIsWrong) {
  EXPECT_NE(corpus_error("q=2\n").find("golden_corpus.txt:1: flags: got none"), std::string::npos);
  EXPECT_NE(corpus_error("# flags: Bees\nq=2\n").find("golden_corpus.txt:1: flags: got Bees; one of Bias"),
            std::string::npos);
  EXPECT_NE(corpus_error("# flags: Plain\nq=-1\n").find("golden_corpus.txt:2: q: got -1"), std::string::npos);
  EXPECT_NE(corpus_error("# only comments\n").find("at least one case"), std::string::npos);
  for (const char* set :
       {"k[9,0,0]=1", "k[0,0]=1", "w[0,0,0]=1", "k[0,0,0]=", "k[0,0,0]=0.1", "k[0,0,0]1", "do[0,0,0]=1"}) {
    EXPECT_NE(
        corpus_error(std::string("# flags: Plain\n# set: ") + set + "\nq=2 k=2 dim=2 direction=forward dtype=f16\n")
            .find("set: got"),
        std::string::npos)
        << set;
  }
}

TEST(GoldenFlags, AreSortedAndDescribed) {
  for (std::size_t n = 0; n < flags().size(); ++n) {
    EXPECT_FALSE(flags()[n].description.empty());
    if (n > 0) {
      EXPECT_LT(flags()[n - 1].name, flags()[n].name);
    }
  }
}

}  // namespace
}  // namespace attest::golden

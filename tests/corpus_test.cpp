// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/corpus.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "reference/problem/case_text.h"
#include "reference/problem/invalid_request.h"

namespace attest {
namespace {

std::string write_file(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path) << text;
  return path;
}

std::string error_of(const std::string& path) {
  try {
    read_corpus(path);
  } catch (const InvalidRequest& error) {
    return error.what();
  }
  return "";
}

TEST(Corpus, SkipsCommentsAndEmptyLines) {
  const std::string path = write_file("good.txt", "# a comment\n\nq=3 k=5  # with a tail\r\n   \nheads=2\n");
  const std::vector<Problem> problems = read_corpus(path);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(print_case(problems[0]), "q=3 k=5");
  EXPECT_EQ(print_case(problems[1]), "heads=2");
}

TEST(Corpus, NamesFileAndLineOfABadCase) {
  const std::string path = write_file("bad.txt", "q=3\nq=-1\n");
  EXPECT_EQ(error_of(path), path + ":2: q: got -1; lengths are 0 to 2147483647");
}

TEST(Corpus, NamesAFileThatCannotBeRead) {
  EXPECT_NE(error_of(testing::TempDir() + "missing.txt").find("missing.txt"), std::string::npos);
  EXPECT_NE(error_of(testing::TempDir()).find("folder"), std::string::npos);
}

TEST(Corpus, AFileWithoutCasesIsAnError) {
  EXPECT_NE(error_of(write_file("empty.txt", "# nothing\n")).find("at least one case"), std::string::npos);
}

}  // namespace
}  // namespace attest

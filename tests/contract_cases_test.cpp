// SPDX-License-Identifier: Apache-2.0
// tests/corpora/bug_triggers.txt: every line is a valid case in canonical form or parses to one, both oracles agree
// on it, and calls that must be refused are refused by name.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "reference/oracle/exact.h"
#include "reference/problem/case_text.h"
#include "reference/problem/inputs.h"
#include "reference/problem/invalid_request.h"
#include "tests/support/agreement.h"
#include "tests/support/slow_oracle.h"

namespace attest {
namespace {

struct Entry {
  int line;
  std::string kind;  // "K07": the last one named in a comment above
  std::string text;
};

std::vector<Entry> read_corpus() {
  std::ifstream file(ATTEST_SOURCE_DIR "/tests/corpora/bug_triggers.txt");
  std::vector<Entry> entries;
  std::string kind;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.rfind("# K", 0) == 0) kind = line.substr(2, 3);
    if (line.empty() || line.front() == '#') continue;
    entries.push_back({number, kind, line});
  }
  return entries;
}

TEST(ContractCases, CoverEveryKindThatACaseCanExpress) {
  std::map<std::string, int> cases;
  for (const Entry& entry : read_corpus()) ++cases[entry.kind];
  for (const char* kind : {"K01", "K02", "K03", "K04", "K05", "K06", "K07", "K08", "K09", "K10", "K11", "K12",
                           "K13", "K15", "K17", "K18", "K19", "K21", "K22", "K23", "K27", "K28", "K30"}) {
    EXPECT_GE(cases[kind], 2) << kind;
  }
  EXPECT_EQ(cases.count(""), 0u);
}

TEST(ContractCases, SurviveParsingAndPrinting) {
  for (const Entry& entry : read_corpus()) {
    SCOPED_TRACE(testing::Message() << "line " << entry.line << ": " << entry.text);
    Problem problem;
    ASSERT_NO_THROW(problem = parse_case(entry.text));
    EXPECT_EQ(parse_case(print_case(problem)), problem);
  }
}

TEST(ContractCases, GetTheSameAnswerFromBothOracles) {
  for (const Entry& entry : read_corpus()) {
    const Problem problem = parse_case(entry.text);
    const Inputs inputs = make_inputs(problem);
    EXPECT_EQ(first_disagreement(exact_attention(problem, inputs), slow::attention(problem, inputs)), "")
        << "line " << entry.line << ": " << entry.text;
  }
}

// K03 (1): offsets that fall, do not start at 0, are negative or pass the end of the tensor; a length past the rows.
TEST(ContractCases, RefuseBadOffsetsByName) {
  const std::pair<const char*, const char*> refused[] = {
      {"layout=thd cuq=0,12,8,16 k=4,4,4", "cuq"},
      {"layout=thd cuq=1,4,8 k=4,4", "cuq"},
      {"layout=thd cuq=0,-4,8 k=4,4", "cuq"},
      {"layout=thd q=5,4 k=4,4 qrows=8", "qrows"},
      {"layout=thd q=5,4 cuk=0,9,8", "cuk"},
      {"q=5,9 k=4,4 qrows=8", "qrows"},
      {"q=5 k=9 krows=8", "krows"},
      {"q=5 k=-1", "k"},
      {"heads=6/4", "heads"},
      {"dropout=1@3", "dropout"},
  };
  for (const auto& [text, field] : refused) {
    try {
      parse_case(text);
      ADD_FAILURE() << text << " was accepted";
    } catch (const InvalidRequest& refusal) {
      EXPECT_EQ(refusal.field(), field) << text << ": " << refusal.what();
    }
  }
}

}  // namespace
}  // namespace attest

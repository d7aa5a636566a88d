// SPDX-License-Identifier: Apache-2.0
// Failing cases become the smallest that fail in the same way; known failures are waived and found again.
#include "reference/verify/shrink.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "reference/problem/case_text.h"
#include "reference/problem/invalid_request.h"
#include "reference/verify/checks/check_unit.h"
#include "reference/verify/corpus.h"
#include "reference/verify/known.h"
#include "reference/verify/report.h"
#include "tests/support/check_faults.h"
#include "tests/support/faulty_kernels.h"

namespace attest {
namespace {

struct Planted {
  const char* kernel;
  const char* check;  // "none": the values show it
  const char* text;   // a case of many features that shows it
  std::int64_t batch, heads_q, heads_kv;  // of the smallest case
  std::int64_t seq_q, seq_k;              // known minimum of the first sequence
};

void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.kernel; }

const attest_kernel* table_of(const char* name) {
  try {
    return testing_support::check_fault(name);
  } catch (const std::logic_error&) {
    return testing_support::faulty_kernel(name);
  }
}

class ShrinkPlanted : public testing::TestWithParam<Planted> {};

TEST_P(ShrinkPlanted, ToTheKnownMinimum) {
  const Planted& planted = GetParam();
  const Kernel kernel(table_of(planted.kernel));
  const auto memory = make_host_memory();
  CheckOptions options;
  options.units = select_checks(planted.check);
  const Verdict failing = check(kernel, parse_case(planted.text), *memory, options);
  ASSERT_EQ(failing.state, State::fail) << describe(failing);
  const Shrunk shrunk = shrink(kernel, failing, *memory, options, {.seconds = 600});
  EXPECT_TRUE(shrunk.finished);
  const Problem& p = shrunk.verdict.problem;
  SCOPED_TRACE(print_case(p));
  EXPECT_EQ(shrunk.verdict.state, State::fail);
  EXPECT_EQ(p.batch(), planted.batch);
  EXPECT_EQ(p.heads_q, planted.heads_q);
  EXPECT_EQ(p.heads_kv, planted.heads_kv);
  EXPECT_LE(std::abs(p.seq_q[0] - planted.seq_q), 2);
  EXPECT_LE(std::abs(p.seq_k[0] - planted.seq_k), 2);
  EXPECT_LE(p.dim, 2);
}

INSTANTIATE_TEST_SUITE_P(
    Ten, ShrinkPlanted,
    testing::Values(
        Planted{"top-left", "none", "layout=thd heads=4/2 q=9,20 k=30,70 dim=24 causal=bottom-right softcap=20 dropout=0.1@4", 1, 1, 1, 1, 2},
        Planted{"scale-off", "none", "layout=bhsd heads=6/2 q=33,5 k=40,9 dim=24 bias=bhqk window=20,3 dlse=on", 1, 1, 1, 1, 1},
        Planted{"no-causal-backward", "none", "heads=4/2 batch=2 q=17 k=17 dim=16/8 causal=top-left alibi=on", 1, 1, 1, 1, 2},
        Planted{"writes-nothing", "none", "layout=thd heads=3 q=5,0,7 k=9,2,0 dim=16 mask=11qk:0.5", 1, 1, 1, 1, 0},
        Planted{"window-off-by-one", "none", "heads=4/2 batch=2 q=40 k=60 dim=16 window=7,5 scale=0.5", 1, 1, 1, 1, 2},
        Planted{"one-tile-only", "none", "layout=bhsd heads=4/2 q=50,20 k=150,90 dim=16 softcap=30", 1, 1, 1, 1, 65},
        Planted{"loses-second-sequence", "none", "heads=4/2 q=30,20,10 k=50,40,30 dim=16 causal=bottom-right", 2, 1, 1, 0, 0},
        Planted{"half-a-group", "none", "heads=8/2 batch=2 q=30 k=50 dim=16 causal=bottom-right", 1, 2, 1, 2, 2},
        Planted{"no-softcap-backward", "none", "heads=4/2 batch=2 q=20 k=30 dim=16 softcap=2 dlse=on", 1, 1, 1, 1, 2},
        Planted{"drifts", "rerun", "heads=4/2 batch=3 q=20 k=30 dim=16 mask=bhqk:0.7 qrows=33", 1, 1, 1, 1, 0}),
    [](const auto& tested) {
      std::string name = tested.param.kernel;
      for (char& c : name) c = c == '-' ? '_' : c;
      return name;
    });

TEST(Shrink, TriesOnlyValidCasesThatDiffer) {
  const Problem problem = parse_case("layout=thd heads=6/2 q=9,20 k=30,70 dim=24/8 causal=bottom-right window=3,4 bias=bhqk dbias=on "
                                     "block=4x4:random=0.3 strides.q=999,80");
  const std::vector<Problem> candidates = simpler(problem);
  EXPECT_GT(candidates.size(), 40u);
  for (const Problem& candidate : candidates) {
    EXPECT_NE(candidate, problem);
    EXPECT_NO_THROW(validate(candidate));
  }
}

TEST(Shrink, StopsWhenItsTimeIsUp) {
  const Kernel kernel(testing_support::faulty_kernel("scale-off"));
  const auto memory = make_host_memory();
  const Verdict failing = check(kernel, parse_case("q=64 k=64"), *memory);
  const Shrunk shrunk = shrink(kernel, failing, *memory, {}, {.seconds = 600, .most_tries = 3});
  EXPECT_EQ(shrunk.tries, 3);
  EXPECT_FALSE(shrunk.finished);
  EXPECT_EQ(shrunk.verdict.state, State::fail);
}

TEST(Corpus, TakesEachFailureOnce) {
  const std::string path = testing::TempDir() + "failures.txt";
  std::filesystem::remove(path);
  add_to_corpus(path, parse_case("q=3 k=5"), "flash: value of o");
  add_to_corpus(path, parse_case("k=5 q=3"), "flash: value of lse");
  add_to_corpus(path, parse_case("q=4 k=5"), "flash: check rerun");
  const std::vector<Problem> problems = read_corpus(path);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(print_case(problems[1]), "q=4 k=5");
  EXPECT_THROW(add_to_corpus("no/such/folder/x", problems[0], ""), InvalidRequest);
}

Verdict verdict_of(const char* kernel, const char* text) {
  const auto memory = make_host_memory();
  return check(Kernel(testing_support::faulty_kernel(kernel)), parse_case(text), *memory);
}

std::vector<KnownFailure> known_of(const std::string& text) {
  const std::string path = testing::TempDir() + "known.txt";
  std::ofstream(path) << text;
  return read_known(path);
}

TEST(Known, WaivesWhatALineNames) {
  const auto known = known_of("# why\ncausal=bottom-right q=* | value of * | 12  # tail\n");
  Verdict failing = verdict_of("top-left", "q=3 k=5 causal=bottom-right direction=forward");
  apply_known(known, failing);
  EXPECT_EQ(failing.state, State::waived);
  EXPECT_EQ(failing.reason, "known: issue 12");
}

TEST(Known, WaivesNothingElse) {
  const auto known = known_of("causal=bottom-right | value of lse | 12\n");
  Verdict more = verdict_of("top-left", "q=3 k=5 causal=bottom-right");  // o fails too
  apply_known(known, more);
  EXPECT_EQ(more.state, State::fail);
  Verdict other = verdict_of("scale-off", "q=3 k=5");
  apply_known(known, other);
  EXPECT_EQ(other.state, State::fail);
}

TEST(Known, AnUnexpectedPassFails) {
  const auto known = known_of("causal=bottom-right | value of * | 12\n");
  Verdict passing = verdict_of("top-left", "q=5 k=5 causal=bottom-right");
  ASSERT_EQ(passing.state, State::pass);
  apply_known(known, passing);
  EXPECT_EQ(passing.state, State::fail);
  ASSERT_EQ(passing.findings.size(), 1u);
  EXPECT_EQ(passing.findings[0].check, "known");
}

TEST(Known, RefusesALineThatIsIncomplete) {
  EXPECT_THROW(known_of("causal=bottom-right | value of o\n"), InvalidRequest);
  EXPECT_THROW(read_known(testing::TempDir() + "no-such-file"), InvalidRequest);
}

}  // namespace
}  // namespace attest

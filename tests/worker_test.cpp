// SPDX-License-Identifier: Apache-2.0
// Hostile kernels in workers: each gets the state that is due to it, and its good cases before and after still pass.
#include "reference/verify/worker/worker_kernel.h"

#include <dirent.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reference/problem/case_text.h"
#include "reference/problem/invalid_request.h"
#include "reference/verify/check.h"
#include "reference/verify/report.h"

namespace attest {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr bool kSanitized = true;  // has its own way with signals, heaps and stacks
#else
constexpr bool kSanitized = false;
#endif

WorkerLimits short_limits() {
  WorkerLimits limits;
  limits.seconds = 1.5;
  limits.memory = std::size_t{256} << 20;
  return limits;
}

std::string hostile(const std::string& name) { return ATTEST_HOSTILE_LIBRARY ":" + name; }

std::set<std::string> entries(const char* folder) {
  std::set<std::string> names;
  DIR* open = opendir(folder);
  while (const dirent* entry = readdir(open)) names.insert(entry->d_name);
  closedir(open);
  return names;
}

/// Prepared once, for all of the hostile kernels have the same numerics.
const std::vector<PreparedCase>& good_cases() {
  static const std::vector<PreparedCase> cases = [] {
    const WorkerKernel worker(hostile("segfault"), short_limits(), ATTEST_BINARY);
    std::vector<PreparedCase> prepared;
    for (int n = 0; n < 50; ++n) {
      const std::string text = "direction=forward dim=8 heads=2 q=" + std::to_string(1 + n % 12) + " k=" + std::to_string(1 + n);
      prepared.push_back(prepare(worker.kernel(), parse_case(text)));
    }
    return prepared;
  }();
  return cases;
}

struct Hostility {
  const char* kernel;
  State state;
  const char* kind;  // of an error, or the check of the finding
};

void PrintTo(const Hostility& hostility, std::ostream* out) { *out << hostility.kernel; }

class Hostile : public testing::TestWithParam<Hostility> {};

TEST_P(Hostile, GetsItsStateAndTheRunGoesOn) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer handles signals itself";
  const Hostility& want = GetParam();
  const std::set<std::string> shared = entries("/dev/shm");
  const std::set<std::string> here = entries(".");
  {
    const WorkerKernel worker(hostile(want.kernel), short_limits(), ATTEST_BINARY);
    const auto good_ones_pass = [&] {
      int passed = 0;
      for (const PreparedCase& prepared : good_cases()) {
        const Verdict verdict = check(worker.kernel(), prepared, worker.memory());
        EXPECT_EQ(verdict.state, State::pass) << describe(verdict);
        passed += verdict.state == State::pass;
      }
      return passed;
    };
    EXPECT_EQ(good_ones_pass(), 50);
    EXPECT_EQ(worker.starts(), 1);
    for (int n = 0; n < 2; ++n) {
      const Verdict verdict = check(worker.kernel(), parse_case("direction=forward dim=8 heads=2 q=13 k=20"), worker.memory());
      EXPECT_EQ(verdict.state, want.state) << describe(verdict);
      if (want.state == State::error) {
        EXPECT_EQ(verdict.kind, want.kind) << describe(verdict);
      } else {
        ASSERT_FALSE(verdict.findings.empty());
        EXPECT_EQ(verdict.findings[0].check, want.kind);
      }
    }
    EXPECT_EQ(good_ones_pass(), 50);
    EXPECT_EQ(worker.starts(), want.state == State::error ? 3 : 1);
  }
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
  EXPECT_EQ(entries("/dev/shm"), shared);
  EXPECT_EQ(entries("."), here);
}

INSTANTIATE_TEST_SUITE_P(
    Worker, Hostile,
    testing::Values(Hostility{"segfault", State::error, "crash"}, Hostility{"aborts", State::error, "abort"},
                    Hostility{"exits", State::error, "exit"}, Hostility{"loops", State::error, "hang"},
                    Hostility{"forks", State::error, "processes"}, Hostility{"forks-a-daemon", State::error, "processes"},
                    Hostility{"writes-before", State::fail, "guard"}, Hostility{"writes-after", State::fail, "guard"},
                    Hostility{"frees-ours", State::error, "crash"}, Hostility{"damages-heap", State::error, "abort"},
                    Hostility{"takes-20-gb", State::error, "memory"},
                    Hostility{"overflows-stack", State::error, "stack overflow"},
                    Hostility{"throws", State::error, "exception"}, Hostility{"throws-a-number", State::error, "exception"},
                    Hostility{"writes-inputs", State::fail, "input"}, Hostility{"writes-nothing", State::fail, "unwritten"},
                    Hostility{"prints-gigabytes", State::error, "output"}, Hostility{"closes-files", State::error, "exit"},
                    Hostility{"kills-itself", State::error, "crash"}, Hostility{"crashes-in-supports", State::error, "crash"}),
    [](const auto& parameter) {
      std::string name;
      for (const char* c = parameter.param.kernel; *c != '\0'; ++c) name += *c == '-' ? '_' : *c;
      return name;
    });

TEST(WorkerKernel, SaysWhatHappenedAndWhere) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer handles signals itself";
  const auto reason = [](const char* name) {
    const WorkerKernel worker(hostile(name), short_limits(), ATTEST_BINARY);
    return check(worker.kernel(), parse_case("direction=forward dim=8 q=13 k=20"), worker.memory()).reason;
  };
  EXPECT_EQ(reason("segfault"), "forward crashed with SIGSEGV at address 0x10");
  EXPECT_EQ(reason("exits"), "forward ended its process with exit code 0");
  EXPECT_EQ(reason("loops"), "forward did not come back within 1.5 s");
  EXPECT_EQ(reason("throws"), "forward threw: out of ideas");
  EXPECT_EQ(reason("damages-heap").find("forward aborted; it printed: "), 0u);
  EXPECT_EQ(reason("crashes-in-supports"), "supports crashed with SIGSEGV at address 0x10");
}

TEST(WorkerKernel, GivesTheSameVerdictAsThisProcess) {
  const std::vector<Kernel> here = load_kernels(ATTEST_FAULTY_LIBRARY ":scale-off");
  const auto memory = make_host_memory();
  const WorkerKernel worker(ATTEST_FAULTY_LIBRARY ":scale-off", {}, ATTEST_BINARY);
  EXPECT_EQ(worker.kernel().request(), here[0].request());
  for (const char* text : {"dtype=bf16 layout=thd heads=4/2 q=9,0,70 k=5,3,130 causal=bottom-right", "q=3 k=5 direction=forward",
                           "dtype=f16 q=40 k=33 bias=bhqk dbias=on dlse=on dropout=0.2@5", "q=8 k=0"}) {
    Verdict want = check(here[0], parse_case(text), *memory);
    Verdict got = check(worker.kernel(), parse_case(text), worker.memory());
    want.seconds = got.seconds = 0;
    EXPECT_EQ(json_line(got), json_line(want));
  }
  EXPECT_EQ(worker.starts(), 1);
}

TEST(WorkerKernel, ListsALibraryWithoutLoadingIt) {
  const std::vector<std::string> requests = kernel_requests(ATTEST_HOSTILE_LIBRARY, {}, ATTEST_BINARY);
  EXPECT_EQ(requests.size(), 21u);
  EXPECT_EQ(requests[1], hostile("aborts"));
  EXPECT_EQ(kernel_requests("flash", {}, ATTEST_BINARY), std::vector<std::string>{"flash"});
}

TEST(WorkerKernel, RefusesWhatIsNoKernel) {
  EXPECT_THROW(WorkerKernel("missing.so", {}, ATTEST_BINARY), InvalidRequest);
  EXPECT_THROW(WorkerKernel(ATTEST_HOSTILE_LIBRARY, {}, ATTEST_BINARY), InvalidRequest);
  EXPECT_THROW(WorkerKernel(ATTEST_CRASHING_LIBRARY, {}, ATTEST_BINARY), InvalidRequest);
}

TEST(WorkerKernel, IsEndedByAnInterrupt) {
  std::atomic<bool> interrupted = false;
  WorkerLimits limits;
  limits.cancelled = [&] { return interrupted.load(); };
  const WorkerKernel worker(hostile("loops"), limits, ATTEST_BINARY);
  const PreparedCase prepared = prepare(worker.kernel(), parse_case("direction=forward dim=8 q=13 k=20"));
  interrupted = true;
  EXPECT_EQ(check(worker.kernel(), prepared, worker.memory()).kind, "cancelled");
}

}  // namespace
}  // namespace attest

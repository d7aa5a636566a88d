// SPDX-License-Identifier: Apache-2.0
// `attest verify`: cases from the command line, from corpora and at random, through check(), into reports.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "reference/problem/case_text.h"
#include "reference/problem/invalid_request.h"
#include "reference/verify/case_runner.h"
#include "reference/verify/cases/case_list.h"
#include "reference/verify/cases/ledger.h"
#include "reference/verify/check.h"
#include "reference/verify/checks/check_unit.h"
#include "reference/verify/corpus.h"
#include "reference/verify/known.h"
#include "reference/verify/profile.h"
#include "reference/verify/report.h"
#include "reference/verify/shrink.h"
#include "tools/builtin.h"
#include "tools/commands.h"
#include "tools/explain_failure.h"
#include "tools/interrupt.h"
#include "tools/output_file.h"
#include "tools/progress.h"
#include "tools/run_clock.h"
#include "tools/subject.h"

namespace attest::tools {
namespace {

constexpr int kUsage = 2;
constexpr int kInterrupted = 130;
constexpr std::int64_t kDefaultCases = 300;
constexpr std::int64_t kShownFailures = 5;
constexpr int kPairs = 2;
// Multiplications that the checks may spend on a random case beside its values: what keeps a run of small and large
// cases at 50 a second. Stated cases get all checks.
constexpr double kWorkPerRandomCase = 2e7;
// A kernel that hangs this often is not asked again: each time costs the whole time limit.
constexpr std::int64_t kMostHangs = 3;

struct Options {
  std::vector<std::string> kernels;
  std::vector<std::string> cases;
  std::vector<std::string> corpora;
  std::optional<std::int64_t> random_cases;
  std::optional<double> seconds;
  std::uint64_t seed = 1;
  std::string direction;
  std::string checks = "all";
  double shrink_seconds = 5;
  std::string failures;
  std::string known;
  std::string shard;
  int strength = 2;
  std::string ledger;
  bool profile = false;
  std::string profile_json;
  std::string junit;
  std::string json;
  bool explain = true;
  WorkerOptions worker;
};

std::optional<Direction> direction_of(const std::string& text) {
  if (text == "forward") return Direction::forward;
  if (text == "backward") return Direction::backward;
  if (text == "both") return Direction::both;
  return std::nullopt;
}

Problem in_direction(Problem problem, std::optional<Direction> direction) {
  if (!direction) return problem;
  problem.direction = *direction;
  if (!problem.wants_backward()) {
    problem.d_lse = false;
    problem.d_bias = false;
  }
  return problem;
}

/// "I/N", 0 <= I < N.
std::pair<std::uint64_t, std::uint64_t> shard_of(const std::string& text) {
  unsigned long long shard = 0;
  unsigned long long shards = 0;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%llu/%llu%c", &shard, &shards, &rest) != 2 || shard >= shards || text[0] == '-') {
    throw InvalidRequest("shard", fmt::format("'{}'", text), "I/N with I from 0 to N - 1");
  }
  return {shard, shards};
}

class Session {
 public:
  explicit Session(const Options& options)
      : options_(options), direction_(direction_of(options.direction)), json_(open_output("json", options.json)),
        junit_(open_output("junit", options.junit)), ledger_(open_output("ledger", options.ledger)),
        profile_(open_output("profile-json", options.profile_json)) {
    check_options_.units = select_checks(options.checks);
    if (!options.known.empty()) known_ = read_known(options.known);
    if (!options.shard.empty()) std::tie(shard_, shards_) = shard_of(options.shard);
    // Failures of earlier runs come first. An empty file holds none yet.
    if (std::error_code no_file; std::filesystem::file_size(options.failures, no_file) > 0 && !no_file) {
      for (const Problem& problem : read_corpus(options.failures)) stated_.push_back(in_direction(problem, direction_));
    }
    for (const std::string& text : options.cases) stated_.push_back(in_direction(parse_case(text), direction_));
    for (const std::string& path : options.corpora) {
      for (const Problem& problem : read_corpus(path)) stated_.push_back(in_direction(problem, direction_));
    }
    for (std::size_t n = stated_.size(); n-- > 0;) {
      if (n % shards_ != shard_) stated_.erase(stated_.begin() + static_cast<std::ptrdiff_t>(n));
    }
    const bool random_by_default = options.cases.empty() && options.corpora.empty() && !options.seconds;
    const std::int64_t all_shards = options.random_cases.value_or(random_by_default ? kDefaultCases : 0);
    random_cases_ = (all_shards + static_cast<std::int64_t>(shards_ - 1 - shard_)) / static_cast<std::int64_t>(shards_);
  }

  int run() {
    std::vector<Subject> subjects = select_subjects(options_.kernels, options_.worker);
    if (const std::string why = why_no_cuda(); options_.kernels.empty() && !why.empty()) {
      fmt::print("CUDA kernels are left out: {}\n", why);
    }
    watch_interrupts();
    const double seconds = options_.seconds.value_or(0) / static_cast<double>(subjects.size());
    for (Subject& subject : subjects) {
      if (interrupted()) break;
      const RunClock clock;
      Profile profile(subject.kernel().name());
      verify(subject, seconds, profile);
      if (const auto failed = first_failure_.find(subject.kernel().name()); options_.explain && failed != first_failure_.end()) {
        fmt::print("{}\n", explain_failure(subject.kernel(), failed->second, subject.memory()));
      }
      const TransportCost transport = subject.transport();
      subject.close();
      keep_profile(profile, clock, transport);
    }
    return finish();
  }

 private:
  void verify(Subject& subject, double seconds, Profile& profile) {
    const Kernel& kernel = subject.kernel();
    CaseList list(space_for(kernel, direction_), options_.seed, options_.strength);
    Ledger ledger(kernel.name(), list.space(), std::max(options_.strength, kPairs));
    const std::vector<Problem> stated_cases = with_own_cases(kernel);
    const auto stated = static_cast<std::int64_t>(stated_cases.size());
    Progress progress(kernel.name(), stated + random_cases_, seconds);
    const auto start = std::chrono::steady_clock::now();
    const auto time_is_up = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() >= seconds;
    };
    std::atomic<std::int64_t> shown = 0;
    // Cases by position: the stated ones, then those of the list.
    const auto evaluate = [&](std::size_t thread, std::int64_t position) {
      subject.share_processors();
      std::optional<Problem> listed;
      Cost generated;
      if (position >= stated) {
        const CostClock clock(generated);
        listed = list.at((position - stated) * static_cast<std::int64_t>(shards_) + static_cast<std::int64_t>(shard_), subject.kernel(thread));
        if (!listed) return end_of_list();
      }
      const Problem& problem = listed ? *listed : stated_cases[static_cast<std::size_t>(position)];
      CheckOptions check_options = check_options_;
      check_options.work_per_case = position < stated ? 0 : kWorkPerRandomCase;
      Verdict verdict = check(subject.kernel(thread), problem, subject.memory(thread), check_options);
      verdict.cost[Phase::generate] = generated;
      if (!known_.empty()) apply_known(known_, verdict);
      // Whatever is among the first to be shown finds `shown` below its limit here, on any number of threads.
      if (shown < kShownFailures) make_smaller(subject.kernel(thread), subject.memory(thread), verdict);
      return verdict;
    };
    const bool any_random = random_cases_ > 0 || seconds > 0;
    CaseRunner runner(subject.threads(), any_random ? std::numeric_limits<std::int64_t>::max() : stated, evaluate);
    std::int64_t hangs = 0;
    std::int64_t listed_cases = 0;
    for (std::int64_t position = 0;; ++position) {
      const bool is_stated = position < stated;
      const bool enough = (random_cases_ > 0 || seconds <= 0) && position - stated >= random_cases_;
      if (interrupted() || (!is_stated && (enough || (seconds > 0 && time_is_up())))) break;
      Verdict verdict = runner.next();
      if (interrupted() || is_end_of_list(verdict)) break;
      ledger.add(verdict);
      profile.add(verdict);
      listed_cases += !is_stated;
      if (verdict.state == State::unsupported && !is_stated) {
        // It had accepted the case in advance. Another in its place would give shards lists of their own.
        refused_[kernel.name()][verdict.reason] += 1;
        continue;
      }
      if (shown >= kShownFailures) verdict.smaller.reset();
      keep_failure(verdict);
      note(verdict, progress);
      shown = shown_.contains(kernel.name()) ? shown_.at(kernel.name()) : 0;
      progress.update(position + 1, failed());
      if (verdict.kind == name_of(FailureKind::hang) && ++hangs == kMostHangs) {
        progress.clear();
        fmt::print("{} has hung {} times and is not asked again: of its cases, {} ran\n", kernel.name(), hangs, position + 1);
        break;
      }
    }
    ledger.finish(list, listed_cases * static_cast<std::int64_t>(shards_));
    keep_ledger(ledger);
    declined_[kernel.name()] = list.declined(listed_cases * static_cast<std::int64_t>(shards_));
  }

  /// What is stated and, where cases are listed too, the cases that checks have of their own; in shards by the first one.
  std::vector<Problem> with_own_cases(const Kernel& kernel) const {
    std::vector<Problem> cases = stated_;
    if (shard_ != 0 || (random_cases_ == 0 && !options_.seconds)) return cases;
    for (const CheckUnit* unit : check_options_.units) {
      if (const std::optional<Problem> own = own_case(*unit, kernel, direction_)) cases.push_back(*own);
    }
    return cases;
  }

  void keep_ledger(const Ledger& ledger) {
    if (options_.strength > 0 && (random_cases_ > 0 || options_.seconds)) ledgers_ += ledger.summary();
    if (!ledger_.is_open()) return;
    ledger_ << (options_.ledger.ends_with(".txt") ? ledger.table() : ledger.json()) << '\n' << std::flush;
  }

  void keep_profile(Profile& profile, const RunClock& clock, const TransportCost& transport) {
    profile.finish(clock.seconds(), clock.cpu_seconds(), transport);
    if (options_.profile) profiles_ += profile.table() + "\n";
    if (profile_.is_open()) profile_ << profile.json() << '\n' << std::flush;
  }

  /// Looks for a smaller case that fails in the same way. A hang would cost its time limit for each try.
  void make_smaller(const Kernel& kernel, DeviceMemory& memory, Verdict& verdict) const {
    if (options_.shrink_seconds <= 0 || failures_of(verdict).empty() || verdict.kind == name_of(FailureKind::hang)) return;
    const CostClock clock(verdict.cost[Phase::shrink]);
    const Shrunk shrunk = shrink(kernel, verdict, memory, check_options_, {.seconds = options_.shrink_seconds});
    if (shrunk.verdict.problem != verdict.problem) verdict.smaller = shrunk.verdict.problem;
  }

  /// Adds the smallest case of a failure to the corpus of --failures.
  void keep_failure(const Verdict& verdict) const {
    if (options_.failures.empty() || failures_of(verdict).empty()) return;
    add_to_corpus(options_.failures, verdict.smaller.value_or(verdict.problem),
                  fmt::format("{}: {}", verdict.kernel, failures_of(verdict).front()));
  }

  void note(const Verdict& verdict, Progress& progress) {
    summary_.add(verdict);
    if (verdict.state == State::fail) first_failure_.try_emplace(verdict.kernel, verdict.problem);
    if (json_.is_open()) json_ << json_line(verdict) << '\n' << std::flush;
    if (junit_.is_open()) verdicts_.push_back(verdict);
    const bool passes = verdict.state == State::pass || verdict.state == State::waived;
    if (passes || shown_[verdict.kernel]++ >= kShownFailures) return;
    progress.clear();
    fmt::print("{}\n", describe(verdict));
    std::fflush(stdout);
  }

  int finish() {
    if (junit_.is_open()) junit_ << junit_xml(verdicts_);
    for (auto* file : {&json_, &junit_, &ledger_, &profile_}) {
      if (!file->is_open()) continue;
      file->close();
      if (!*file) throw std::runtime_error("a report could not be written to its end (is the disk full?)");
    }
    for (const auto& [kernel, count] : shown_) {
      if (count > kShownFailures) fmt::print("{} more like these of {} are not shown here; --json and --junit have all\n\n", count - kShownFailures, kernel);
    }
    fmt::print("{}{}", profiles_, summary_.table());
    fmt::print("{}", ledgers_);
    print_reasons(declined_, "declined {} random cases that were replaced by others");
    print_reasons(refused_, "refused {} random cases only when it was called");
    if (summary_.ran() == 0) fmt::print("nothing ran: no case was supported\n");
    if (interrupted()) {
      fmt::print("interrupted: the counts and reports cover what ran until then\n");
      return kInterrupted;
    }
    return summary_.exit_code();
  }

  using Reasons = std::map<std::string, std::map<std::string, std::int64_t>>;  // by kernel

  static void print_reasons(const Reasons& all, const char* what) {
    for (const auto& [kernel, reasons] : all) {
      std::int64_t total = 0;
      for (const auto& [reason, count] : reasons) total += count;
      if (total == 0) continue;
      fmt::print("{} {}:\n", kernel, fmt::format(fmt::runtime(what), total));
      for (const auto& [reason, count] : reasons) fmt::print("  {:>7}  {}\n", count, reason);
    }
  }

  std::int64_t failed() const {
    return summary_.count(State::fail) + summary_.count(State::untrusted) + summary_.count(State::error);
  }

  const Options& options_;
  std::optional<Direction> direction_;
  CheckOptions check_options_;
  std::vector<KnownFailure> known_;
  std::uint64_t shard_ = 0;
  std::uint64_t shards_ = 1;
  std::ofstream json_;
  std::ofstream junit_;
  std::ofstream ledger_;
  std::ofstream profile_;
  std::string profiles_;  // tables, of all kernels
  std::string ledgers_;  // summaries, of all kernels
  std::vector<Problem> stated_;
  std::int64_t random_cases_ = 0;
  Summary summary_;
  std::vector<Verdict> verdicts_;
  std::map<std::string, std::int64_t> shown_;
  std::map<std::string, Problem> first_failure_;  // by kernel
  Reasons declined_;
  Reasons refused_;
};

}  // namespace

Run add_verify(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("verify", "Verify kernels: every element against the exact oracle and its bound");
  command->add_option("--kernel", options->kernels,
                      "a built-in kernel's name, or a shared library PATH.so[:NAME]; repeatable; default: all that can run here")
      ->allow_extra_args(false);
  command->add_option("--case", options->cases, "a case in case text; repeatable")->allow_extra_args(false);
  command->add_option("--corpus", options->corpora, "a file with one case a line; repeatable")->allow_extra_args(false);
  command->add_option("--cases", options->random_cases, fmt::format("random cases per kernel (default {} where no case, corpus or time is given)", kDefaultCases))
      ->check(CLI::NonNegativeNumber);
  command->add_option("--time", options->seconds, "seconds of random cases, shared by the kernels")->check(CLI::PositiveNumber);
  command->add_option("--seed", options->seed, "seed of the random cases (default 1); the same seed gives the same list");
  command->add_option("--direction", options->direction, "forward, backward or both, for all cases")
      ->check(CLI::IsMember({"forward", "backward", "both"}));
  command->add_option("--checks", options->checks,
                      "checks beside the values: all (default), none, or names of `attest checks` separated by commas");
  command->add_flag("--explain,!--no-explain", options->explain, "say what explains the first failing case of each kernel, where anything does (default: on)");
  command->add_option("--shrink", options->shrink_seconds,
                      "seconds to look for a smaller case of each failure that is shown (default 5; 0: do not)")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--failures", options->failures,
                      "a corpus that is run first where it exists, and gets the smallest case of each failure");
  command->add_option("--known", options->known, "known failures to waive: lines CASE-PATTERN | FAILURE | ISSUE");
  command->add_option("--shard", options->shard, "I/N: run only every N-th case, from the I-th; all N shards run what one run would");
  command->add_option("--strength", options->strength,
                      "cases that are not stated begin with a covering array of the feature values: 2 all pairs (default), 3 all triples, 0 none")
      ->check(CLI::IsMember({0, 2, 3}));
  command->add_option("--ledger", options->ledger,
                      "write what was covered, declined, skipped, waived and never reached: JSON, one line a kernel; a table where the name ends in .txt");
  command->add_flag("--profile", options->profile, "say what the cases cost, by phase and by check");
  command->add_option("--profile-json", options->profile_json, "write that to this file, one JSON object a kernel");
  command->add_option("--junit", options->junit, "write a JUnit XML report to this file");
  command->add_option("--json", options->json, "write one JSON object a case to this file");
  add_worker_options(*command, options->worker);
  command->footer("Examples:\n"
                  "  attest verify --kernel flash --cases 1000 --seed 7\n"
                  "  attest verify --kernel ./libmine.so:my-kernel --time 60 --junit report.xml\n"
                  "  attest verify --kernel flash --case 'dtype=bf16 q=3 k=5 causal=bottom-right'\n"
                  "\nFields of a case:\n" + case_text_help());
  return [options] { return Session(*options).run(); };
}

}  // namespace attest::tools

// SPDX-License-Identifier: Apache-2.0
// `attest gate`: one command for CI. Replays the corpora, then random cases until the budget is spent, and leaves its
// findings where people look.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "reference/problem/case_text.h"
#include "reference/problem/invalid_request.h"
#include "reference/verify/case_runner.h"
#include "reference/verify/cases/case_list.h"
#include "reference/verify/cases/ledger.h"
#include "reference/verify/check.h"
#include "reference/verify/checks/check_unit.h"
#include "reference/verify/corpus.h"
#include "reference/verify/gate/gate_result.h"
#include "reference/verify/report.h"
#include "tools/builtin.h"
#include "tools/commands.h"
#include "tools/comparison.h"
#include "tools/file_hash.h"
#include "tools/interrupt.h"
#include "tools/progress.h"
#include "tools/subject.h"

namespace attest::tools {
namespace {

constexpr int kInterrupted = 130;
constexpr double kWorkPerRandomCase = 2e7;   // as in `attest verify`
constexpr double kBaselineShare = 0.2;       // of the budget
constexpr std::int64_t kMostHangs = 3;
constexpr int kPairs = 2;                    // strength of the covering array
constexpr std::size_t kWorstShown = 12;
constexpr std::size_t kDrawnForMaps = 6;     // each costs another run of the case

struct Options {
  std::vector<std::string> kernels;
  std::string baseline;
  std::vector<std::string> corpora;
  double budget = 60;
  std::optional<std::int64_t> cases;  // none: as many as the budget has room for
  std::uint64_t seed = 1;
  std::int64_t repeat = 1;
  std::string checks = "all";
  std::string report = "report";
  WorkerOptions worker;
};

bool is_bad(const Verdict& verdict) {
  return verdict.state == State::fail || verdict.state == State::untrusted || verdict.state == State::error;
}

class Clock {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// The folder and all files of the report, opened before any work so that what cannot be written is known at once.
class ReportFolder {
 public:
  explicit ReportFolder(const std::string& path) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) throw InvalidRequest("report", fmt::format("'{}'", path), "a folder that can be made (" + error.message() + ")");
    for (const char* name : {"cases.jsonl", "ledger.jsonl", "junit.xml", "summary.md", "index.html"}) {
      std::ofstream& file = files_[name];
      file.open(path + "/" + name, std::ios::trunc);
      if (!file) throw InvalidRequest("report", fmt::format("'{}/{}'", path, name), "a file that can be written");
    }
  }
  void write(const std::string& name, const std::string& text) { files_.at(name) << text << std::flush; }
  void close() {
    for (auto& [name, file] : files_) {
      file.close();
      if (!file) throw std::runtime_error(name + " of the report could not be written to its end (is the disk full?)");
    }
  }

 private:
  std::map<std::string, std::ofstream> files_;
};

class Gate {
 public:
  explicit Gate(const Options& options) : options_(options) {
    units_ = select_checks(options.checks);
    for (const std::string& path : options.corpora) {
      for (const Problem& problem : read_corpus(path)) stated_.push_back(problem);
    }
  }

  int run() {
    std::vector<Subject> subjects = select_subjects(options_.kernels, options_.worker);
    std::vector<Subject> baselines;
    if (!options_.baseline.empty()) baselines = select_subjects({options_.baseline}, options_.worker);
    if (baselines.size() > 1) throw InvalidRequest("baseline", fmt::format("'{}'", options_.baseline), "one kernel, PATH.so:NAME");
    ReportFolder folder(options_.report);
    watch_interrupts();
    describe_run(subjects);
    for (std::size_t n = 0; n < subjects.size() && !interrupted(); ++n) {
      Subject& subject = subjects[n];
      const double left = (options_.budget - clock_.seconds()) / static_cast<double>(subjects.size() - n);
      run_cases(subject, left * (baselines.empty() ? 1 : 1 - kBaselineShare), folder);
      for (Subject& baseline : baselines) {
        const double rest = (options_.budget - clock_.seconds()) / static_cast<double>(subjects.size() - n);
        for (std::string& note : compare_with_baseline(subject, baseline, result_.verdicts, std::max(rest, 0.0))) result_.notes.push_back(std::move(note));
      }
      pick_worst(subject);
      subject.close();
    }
    return finish(folder);
  }

 private:
  void describe_run(std::vector<Subject>& subjects) {
    std::set<std::string> files;
    for (Subject& subject : subjects) {
      const Kernel& kernel = subject.kernel();
      result_.title += fmt::format("{}{}", result_.title.empty() ? "" : ", ", kernel.name());
      if (kernel.origin() != kBuiltIn && files.insert(kernel.origin()).second) {
        result_.environment.emplace_back("file " + kernel.origin(), "sha256 " + file_sha256(kernel.origin()));
      }
      if (kernel.on_cuda()) device_ = subject.memory().name();
      subject.close();
    }
    result_.title += fmt::format("; seed {}", options_.seed);
    result_.environment.emplace_back("attest", ATTEST_VERSION ", compiled by " __VERSION__);
    result_.environment.emplace_back("device", device_.empty() ? "CPU" : device_);
    if (const std::string why = why_no_cuda(); !why.empty()) result_.environment.emplace_back("CUDA", why);
    result_.environment.emplace_back("seed", std::to_string(options_.seed));
    result_.environment.emplace_back("runs of a case", std::to_string(options_.repeat));
    result_.environment.emplace_back("workers", options_.worker.in_process ? "none, in this process" : std::to_string(subjects.front().threads()));
  }

  /// One case, `repeat` times: the worst of the verdicts, and how many were bad where not all agree.
  Verdict evaluate(Subject& subject, std::size_t thread, const Problem& problem, double work) {
    CheckOptions options;
    options.units = units_;
    options.work_per_case = work;
    const PreparedCase prepared = prepare(subject.kernel(thread), problem, options);
    Verdict worst = check(subject.kernel(thread), prepared, subject.memory(thread), options);
    if (worst.state == State::unsupported) return worst;
    std::int64_t bad = is_bad(worst);
    for (std::int64_t n = 1; n < options_.repeat && !interrupted(); ++n) {
      Verdict again = check(subject.kernel(thread), prepared, subject.memory(thread), options);
      bad += is_bad(again);
      if (is_bad(again) && !is_bad(worst)) worst = std::move(again);
    }
    if (bad > 0 && bad < options_.repeat) {
      worst.findings.push_back({"flaky", "", fmt::format("bad in {} of {} runs of the same case", bad, options_.repeat)});
    }
    return worst;
  }

  void run_cases(Subject& subject, double seconds, ReportFolder& folder) {
    const Clock clock;
    const Kernel& kernel = subject.kernel();
    CaseList list(space_for(kernel), options_.seed, kPairs);
    Ledger ledger(kernel.name(), list.space(), kPairs);
    const auto stated = static_cast<std::int64_t>(stated_.size());
    const auto work = [&](std::size_t thread, std::int64_t position) {
      subject.share_processors();
      if (position < stated) return evaluate(subject, thread, stated_[static_cast<std::size_t>(position)], 0);
      const std::optional<Problem> listed = list.at(position - stated, subject.kernel(thread));
      return listed ? evaluate(subject, thread, *listed, kWorkPerRandomCase) : end_of_list();
    };
    CaseRunner runner(subject.threads(), std::numeric_limits<std::int64_t>::max(), work);
    Progress progress(kernel.name(), 0, seconds);
    std::map<std::string, std::int64_t> refused;
    std::int64_t listed = 0, ran = 0, replayed = 0, hangs = 0, position = 0;
    const char* ended = "the budget was spent";
    for (;; ++position) {
      if (options_.cases && ran >= *options_.cases && position >= stated) {
        ended = "the cases asked for have run";
        break;
      }
      if (clock.seconds() >= seconds) break;
      const Verdict verdict = runner.next();
      if (interrupted()) {
        ended = "interrupted";
        break;
      }
      if (is_end_of_list(verdict)) {
        ended = "the kernel declines all further ones";
        break;
      }
      ledger.add(verdict);
      listed += position >= stated;
      if (verdict.state == State::unsupported && position >= stated) {
        refused[verdict.reason] += 1;
        continue;
      }
      (position < stated ? replayed : ran) += 1;
      summary_.add(verdict);
      folder.write("cases.jsonl", json_line(verdict) + "\n");
      result_.verdicts.push_back(verdict);
      progress.update(replayed + ran, bad());
      if (verdict.kind == name_of(FailureKind::hang) && ++hangs == kMostHangs) {
        ended = "it has hung three times and is not asked again";
        break;
      }
    }
    result_.notes.push_back(fmt::format("{}: {} of {} cases of the corpora, {} random cases, {:.0f} s; then {}", kernel.name(), replayed,
                                        stated, ran, clock.seconds(), ended));
    // What was not run is no pass.
    if (replayed < stated && !interrupted()) result_.notes.push_back(fmt::format("{}: {} cases of the corpora did not run", kernel.name(), stated - replayed));
    unfinished_ |= replayed < stated;
    ledger.finish(list, listed);
    folder.write("ledger.jsonl", ledger.json() + "\n");
    std::istringstream lines(ledger.summary());
    for (std::string line; std::getline(lines, line);) result_.notes.push_back(line.substr(line.find_first_not_of(' ')));
    const std::map<std::string, std::int64_t> declined = list.declined(listed);
    std::int64_t total = 0;
    for (const auto& [reason, count] : declined) total += count;
    if (total > 0) result_.notes.push_back(fmt::format("{} declined {} random cases, for {} reasons; others took their place", kernel.name(), total, declined.size()));
    for (const auto& [reason, count] : declined) result_.notes.push_back(fmt::format("declined {} times: {}", count, reason));
    for (const auto& [reason, count] : refused) result_.notes.push_back(fmt::format("refused {} times, only when it was called: {}", count, reason));
  }

  void pick_worst(Subject& subject) {
    std::vector<const Verdict*> judged;
    for (const Verdict& verdict : result_.verdicts) {
      if (verdict.kernel == subject.kernel().name() && !verdict.tensors.empty()) judged.push_back(&verdict);
    }
    const std::size_t count = std::min(judged.size(), kWorstShown);
    std::partial_sort(judged.begin(), judged.begin() + static_cast<std::ptrdiff_t>(count), judged.end(),
                      [](const Verdict* a, const Verdict* b) { return a->score() > b->score(); });
    for (std::size_t n = 0; n < count; ++n) {
      WorstCase worst{*judged[n], {}};
      if (n < kDrawnForMaps && !interrupted()) worst.maps = error_maps(subject.kernel(), worst.verdict.problem, subject.memory());
      result_.worst.push_back(std::move(worst));
    }
  }

  int finish(ReportFolder& folder) {
    std::stable_sort(result_.worst.begin(), result_.worst.end(), [](const WorstCase& a, const WorstCase& b) { return a.verdict.score() > b.verdict.score(); });
    if (result_.worst.size() > kWorstShown) result_.worst.resize(kWorstShown);
    if (interrupted()) result_.notes.push_back("interrupted: the report covers what ran until then");
    if (summary_.ran() == 0) result_.notes.push_back("nothing ran: no case was supported");
    const std::string markdown = markdown_summary(result_);
    folder.write("junit.xml", junit_xml(result_.verdicts));
    folder.write("summary.md", markdown);
    folder.write("index.html", html_page(result_));
    folder.close();
    if (const char* step = std::getenv("GITHUB_STEP_SUMMARY"); step != nullptr && *step != '\0') std::ofstream(step, std::ios::app) << markdown;
    if (std::getenv("GITHUB_ACTIONS") != nullptr) fmt::print("{}", github_annotations(result_));
    std::int64_t shown = 0;
    for (const Verdict& verdict : result_.verdicts) {
      if (is_bad(verdict) && shown++ < 3) fmt::print("{}\n", describe(verdict));
    }
    fmt::print("{}", summary_.table());
    for (const std::string& note : result_.notes) fmt::print("{}\n", note);
    fmt::print("report: {}/index.html\n", options_.report);
    if (interrupted()) return kInterrupted;
    return unfinished_ ? 1 : summary_.exit_code();
  }

  std::int64_t bad() const { return summary_.count(State::fail) + summary_.count(State::untrusted) + summary_.count(State::error); }

  const Options& options_;
  const Clock clock_;
  std::vector<const CheckUnit*> units_;
  std::vector<Problem> stated_;
  std::string device_;
  Summary summary_;
  GateResult result_;
  bool unfinished_ = false;
};

}  // namespace

Run add_gate(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("gate", "For CI: the corpora, then random cases until the budget is spent, with reports for people and machines");
  command->add_option("--kernel", options->kernels, "a built-in kernel's name, or a shared library PATH.so[:NAME]; repeatable; default: all that can run here")
      ->allow_extra_args(false);
  CLI::Option* baseline = command->add_option("--baseline", options->baseline, "a kernel to compare errors and times with, on the same cases");
  command->add_option("--corpus", options->corpora, "a file with one case a line, replayed first; repeatable")->allow_extra_args(false);
  command->add_option("--budget", options->budget, "seconds in all, shared by the kernels (default 60)")->check(CLI::PositiveNumber);
  command->add_option("--cases", options->cases, "at most this many random cases per kernel (default: what the budget has room for)")->check(CLI::NonNegativeNumber);
  command->add_option("--seed", options->seed, "seed of the random cases (default 1); the same seed gives the same list");
  command->add_option("--repeat", options->repeat, "runs of each case; one that is bad in some of them is flaky, and bad (default 1)")->check(CLI::PositiveNumber);
  command->add_option("--checks", options->checks, "checks beside the values: all (default), none, or names of `attest checks` separated by commas");
  command->add_option("--report", options->report, "folder for index.html, summary.md, junit.xml, cases.jsonl and ledger.jsonl (default 'report')");
  add_worker_options(*command, options->worker);
  command->get_option("--in-process")->excludes(baseline);
  command->footer("Examples:\n"
                  "  attest gate --kernel ./libmine.so\n"
                  "  attest gate --kernel ./libmine.so:new --baseline ./libmine.so:old --corpus cases.txt --budget 300\n"
                  "\nWhere GITHUB_ACTIONS is set, annotations are printed, and the summary goes to $GITHUB_STEP_SUMMARY as well.\n"
                  "Exit codes: 0 all pass; 1 any fail, untrusted or error, a corpus not finished, or nothing ran; 2 usage or\n"
                  "environment; 130 interrupted (reports are complete up to there).");
  return [options] { return Gate(*options).run(); };
}

}  // namespace attest::tools

// SPDX-License-Identifier: Apache-2.0
#include "tools/comparison.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <fmt/format.h>

#include "reference/verify/check.h"
#include "reference/verify/gate/paired_times.h"
#include "reference/verify/run_kernel.h"
#include "tools/interrupt.h"

namespace attest::tools {
namespace {

constexpr int kPairs = 5;

/// Seconds of the kernel's own calls in one run; 0 where it did not answer.
double run_time(Subject& subject, const PreparedCase& prepared) {
  const double before = subject.kernel_seconds();
  const KernelRun run = run_kernel(subject.kernel(), prepared.problem, prepared.inputs, prepared.truth.exact, subject.memory());
  return run.judgeable() ? subject.kernel_seconds() - before : 0;
}

}  // namespace

std::vector<std::string> compare_with_baseline(Subject& candidate, Subject& baseline, const std::vector<Verdict>& verdicts,
                                               double seconds) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<PairedLogRatios> times;
  std::vector<double> scores;  // log ratios
  std::int64_t compared = 0, only_candidate_bad = 0, only_baseline_bad = 0;
  for (const Verdict& verdict : verdicts) {
    if (interrupted() || std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > seconds) break;
    if (verdict.kernel != candidate.kernel().name() || verdict.tensors.empty()) continue;
    const PreparedCase prepared = prepare(baseline.kernel(), verdict.problem);
    const Verdict other = check(baseline.kernel(), prepared, baseline.memory());
    if (other.state == State::unsupported) continue;
    ++compared;
    only_candidate_bad += verdict.state == State::fail && other.state == State::pass;
    only_baseline_bad += verdict.state == State::pass && other.state != State::pass;
    if (verdict.state != State::pass || other.state != State::pass) continue;
    if (verdict.score() > 0 && other.score() > 0) scores.push_back(std::log(verdict.score() / other.score()));
    PairedLogRatios pairs;
    for (int n = 0; n < kPairs; ++n) {
      // In turn, so that what slows the machine down slows both.
      const double first = n % 2 == 0 ? run_time(candidate, prepared) : run_time(baseline, prepared);
      const double second = n % 2 == 0 ? run_time(baseline, prepared) : run_time(candidate, prepared);
      if (first > 0 && second > 0) pairs.push_back(n % 2 == 0 ? std::log(first / second) : std::log(second / first));
    }
    if (!pairs.empty()) times.push_back(std::move(pairs));
  }
  std::vector<std::string> notes;
  notes.push_back(fmt::format("against baseline {}, {} cases: {} fail that the baseline passes, {} pass that it fails; scores are {:.3g} times the baseline's (median)",
                              baseline.kernel().name(), compared, only_candidate_bad, only_baseline_bad, std::exp(median(scores))));
  if (!times.empty()) {
    double ratio = 0, noise = 0;
    const std::string judged = judge_times(times, ratio, noise);
    notes.push_back(fmt::format("time against baseline {}: {} ({:.3g} times, noise {:.2g}, {} cases, {} pairs each)", baseline.kernel().name(), judged,
                                ratio, noise, times.size(), kPairs));
  }
  return notes;
}

}  // namespace attest::tools

// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/check.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "reference/oracle/bound.h"
#include "reference/oracle/closed_form.h"
#include "reference/problem/case_text.h"
#include "reference/problem/inputs.h"
#include "reference/problem/invalid_request.h"
#include "reference/verify/checks/check_unit.h"
#include "reference/verify/conventions.h"
#include "reference/verify/explain.h"
#include "reference/verify/generate.h"
#include "reference/verify/judge_outputs.h"
#include "reference/verify/run_kernel.h"

namespace attest {
namespace {

constexpr double kMostUnspecified = 0.01;  // share of a tensor for which no bound can be stated
constexpr double kWorkOfAnyRun = 2e4;      // of placing and reading back buffers, in multiplications of a forward

}  // namespace

// The values under another dropout mask than the contract's are not known.
std::string why_unjudgeable(const Kernel& kernel, const Problem& problem) {
  if (problem.dropout && problem.dropout->p > 0 && kernel.table().conventions.dropout_map != ATTEST_DROPOUT_ATTEST) {
    return "dropout by a mapping of its own, which cannot be judged by value";
  }
  return kernel.why_unsupported(problem);
}

BoundMode bound_mode(const Problem& problem) {
  switch (family(problem.fill.family).kind) {
    case FamilyKind::random: return BoundMode::gen;
    case FamilyKind::captured: return BoundMode::captured;
    case FamilyKind::structured:
    case FamilyKind::exact: break;
  }
  return BoundMode::det;
}

namespace {

/// A single gradient may be too small to be judged (one key has no dq and dk to speak of); the case has no power where
/// o, or all gradients together, could be zero unseen.
std::string powerless_direction(const Verdict& verdict) {
  std::string gradients;
  bool any_gradient = false;
  bool all_powerless = true;
  for (const TensorVerdict& tensor : verdict.tensors) {
    if (tensor.tensor == "o" && tensor.powerless) return "o";
    if (tensor.tensor == "o" || tensor.tensor == "lse") continue;
    any_gradient = true;
    all_powerless &= tensor.powerless;
    gradients += (gradients.empty() ? "" : ", ") + tensor.tensor;
  }
  return any_gradient && all_powerless ? gradients : "";
}

/// The checks that run on this case: all, or, within the budget, those that a shuffle by its text puts first.
std::vector<const CheckUnit*> chosen_units(const CheckOptions& options, const Problem& problem, std::uint64_t seed) {
  std::vector<const CheckUnit*> units = options.units;
  std::erase_if(units, [&](const CheckUnit* unit) { return !runs_on(*unit, problem); });
  if (options.work_per_case <= 0) return units;
  for (std::size_t n = units.size(); n > 1; --n) std::swap(units[n - 1], units[random_word(seed, 1, n) % n]);
  const double passes = (problem.wants_forward() ? 1.0 : 0.0) + (problem.wants_backward() ? 2.5 : 0.0);
  const double work = (forward_work(problem) + kWorkOfAnyRun) * passes;
  double spent = 0;
  std::vector<const CheckUnit*> chosen;
  for (const CheckUnit* unit : units) {
    if (!chosen.empty() && spent + unit->runs * work > options.work_per_case) continue;
    spent += unit->runs * work;
    chosen.push_back(unit);
  }
  return chosen;
}

bool is_wrong(const std::string& tensor, const Verdict& verdict) {
  return std::ranges::any_of(verdict.tensors, [&](const TensorVerdict& t) { return t.tensor == tensor && t.wrong > 0; });
}

void run_checks(const Kernel& kernel, const PreparedCase& prepared, const KernelRun& base, DeviceMemory& memory,
                const CheckOptions& options, Verdict& verdict) {
  if (options.units.empty()) return;
  const std::uint64_t seed = case_seed(prepared.problem);
  for (const CheckUnit* unit : chosen_units(options, prepared.problem, seed)) {
    Cost cost;
    CheckResult result;
    {
      const CostClock clock(cost);
      result = unit->run(CheckContext(kernel, prepared, base, memory, seed));
    }
    for (Finding& finding : result.findings) {
      if (finding.check.empty()) finding.check = unit->name;
    }
    const std::size_t found = result.findings.size();
    std::erase_if(result.findings, [&](const Finding& finding) { return finding.by_value && is_wrong(finding.tensor, verdict); });
    if (!result.findings.empty()) {
      result.outcome = Outcome::fail;
    } else if (found > 0) {
      result = CheckResult::not_applicable("the case's own values are off already");
    }
    verdict.findings.insert(verdict.findings.end(), result.findings.begin(), result.findings.end());
    verdict.checks.push_back({unit->name, result.outcome, result.reason, cost});
    verdict.cost[Phase::checks].add(cost);
    if (result.outcome == Outcome::untrusted && verdict.reason.empty()) {
      verdict.reason = fmt::format("check {}: {}", unit->name, result.reason);
    }
  }
}

void decide(const KernelRun& run, Verdict& verdict) {
  if (!run.refusal.empty()) {
    verdict.state = State::unsupported;
    verdict.reason = run.refusal;
    return;
  }
  if (!run.error.empty()) {
    verdict.state = State::error;
    verdict.kind = name_of(run.kind);
    verdict.reason = run.error;
    return;
  }
  for (const TensorVerdict& tensor : verdict.tensors) {
    if (tensor.wrong > 0) verdict.state = State::fail;
  }
  if (!verdict.findings.empty()) verdict.state = State::fail;
  if (verdict.state == State::fail) {
    verdict.reason.clear();
    return;
  }
  for (const TensorVerdict& tensor : verdict.tensors) {
    if (static_cast<double>(tensor.unspecified) > kMostUnspecified * static_cast<double>(tensor.total)) {
      verdict.reason = fmt::format("no bound can be stated for {} of {} elements of {}", tensor.unspecified, tensor.total,
                                   tensor.tensor);
    }
  }
  if (const std::string powerless = powerless_direction(verdict); !powerless.empty()) {
    verdict.reason = fmt::format("an all-zero {} would pass: the bounds are larger than the values", powerless);
  }
  if (2 * verdict.coverage.uncovered_rows > verdict.coverage.rows) {
    verdict.reason = fmt::format("in {} of {} rows any key could be lost within the bound of lse",
                                 verdict.coverage.uncovered_rows, verdict.coverage.rows);
  }
  if (!verdict.reason.empty()) verdict.state = State::untrusted;
}

}  // namespace

std::uint64_t case_seed(const Problem& problem) {
  std::uint64_t seed = 0;
  for (const char c : print_case(problem)) seed = random_word(seed, static_cast<unsigned char>(c), 0);
  return seed;
}

void judge_run(const Problem& problem, const ExactWithBounds& truth, const KernelRun& run, Verdict& verdict) {
  verdict.findings = run.findings;
  if (run.judgeable()) verdict.tensors = judge_outputs(problem, truth, run.outputs);
  decide(run, verdict);
}

PreparedCase prepare(const Kernel& kernel, const Problem& problem, const CheckOptions& options) {
  PreparedCase prepared;
  prepared.problem = problem;
  attest_numerics numerics{};
  try {
    prepared.unsupported = why_unjudgeable(kernel, problem);
    if (!prepared.unsupported.empty()) return prepared;
    numerics = kernel.numerics(problem);
  } catch (const KernelFailure& failure) {
    prepared.failure = failure;
    return prepared;
  }
  check_size(problem, options.byte_limit);
  {
    const CostClock clock(prepared.cost[Phase::inputs]);
    prepared.inputs = make_inputs(problem);
  }
  {
    const CostClock clock(prepared.cost[Phase::oracle]);
    prepared.truth.exact = exact_attention(problem, prepared.inputs);
  }
  const CostClock clock(prepared.cost[Phase::bounds]);
  const NumericsProfile profile = make_profile(numerics, problem);
  prepared.truth.bounds = error_bounds(problem, prepared.inputs, prepared.truth.exact, profile, bound_mode(problem));
  if (family(problem.fill.family).kind == FamilyKind::exact) {
    apply_closed_form(problem, prepared.inputs, profile, prepared.truth);
  }
  apply_conventions(kernel.table().conventions, problem, prepared.inputs, prepared.truth);
  return prepared;
}

Verdict check(const Kernel& kernel, const PreparedCase& prepared, DeviceMemory& memory, const CheckOptions& options) {
  Verdict verdict;
  verdict.kernel = kernel.name();
  verdict.request = kernel.request();
  verdict.problem = prepared.problem;
  verdict.cost = prepared.cost;
  verdict.reason = prepared.unsupported;
  if (!verdict.reason.empty()) {
    verdict.state = State::unsupported;
    return verdict;
  }
  if (prepared.failure) {
    verdict.state = State::error;
    verdict.kind = name_of(prepared.failure->kind());
    verdict.reason = prepared.failure->what();
    return verdict;
  }
  KernelRun run;
  {
    const CostClock clock(verdict.cost[Phase::run]);
    run = run_kernel(kernel, prepared.problem, prepared.inputs, prepared.truth.exact, memory);
  }
  verdict.findings = run.findings;
  if (run.judgeable()) {
    verdict.coverage = prepared.truth.bounds.coverage;
    {
      const CostClock clock(verdict.cost[Phase::judge]);
      verdict.tensors = judge_outputs(prepared.problem, prepared.truth, run.outputs);
    }
    try {
      run_checks(kernel, prepared, run, memory, options, verdict);
    } catch (const KernelFailure& failure) {
      run.error = failure.what();
      run.kind = failure.kind();
    }
  }
  decide(run, verdict);
  const bool wrong_values = std::any_of(verdict.tensors.begin(), verdict.tensors.end(),
                                        [](const TensorVerdict& tensor) { return tensor.wrong > 0; });
  if (run.judgeable() && (wrong_values || options.explain)) {
    const CostClock clock(verdict.cost[Phase::explain]);
    const BoundMode mode = prepared.truth.bounds.deviations == 0 ? BoundMode::det : bound_mode(prepared.problem);
    explain_bounds(prepared.inputs, make_profile(kernel.numerics(prepared.problem), prepared.problem), mode, verdict);
  }
  for (const Cost& cost : verdict.cost.phases) verdict.seconds += cost.seconds;
  return verdict;
}

Verdict check(const Kernel& kernel, const Problem& problem, DeviceMemory& memory, const CheckOptions& options) {
  return check(kernel, prepare(kernel, problem, options), memory, options);
}

}  // namespace attest

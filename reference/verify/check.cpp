// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/check.h"

#include <chrono>
#include <cmath>

#include <fmt/format.h>

#include "reference/oracle/bound.h"
#include "reference/oracle/closed_form.h"
#include "reference/problem/inputs.h"
#include "reference/problem/invalid_request.h"
#include "reference/verify/conventions.h"
#include "reference/verify/judge.h"
#include "reference/verify/run_kernel.h"

namespace attest {
namespace {

constexpr double kMostUnspecified = 0.01;  // share of a tensor for which no bound can be stated

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// The kernel's reason for declining, or ours: the values under another dropout mask than the contract's are not known.
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

/// [tokens, heads] as Values of width 1.
Values as_values(const std::vector<double>& data, std::int64_t tokens, std::int64_t heads) {
  Values values;
  values.tokens = tokens;
  values.heads = heads;
  values.width = 1;
  values.data = data;
  return values;
}

/// The bias gradient as Values of one "sequence" of [b, h] heads, rows i and columns j.
Values as_values(const Operand<double>& operand) {
  Values values;
  values.tokens = operand.extent_b * operand.extent_h * operand.extent_q;
  values.heads = 1;
  values.width = operand.extent_k;
  values.data = operand.data;
  return values;
}

void judge_all(const Problem& p, const ExactWithBounds& truth, const Outputs& got, Verdict& verdict) {
  const auto judge = [&](const char* name, const std::vector<std::int64_t>& lengths, const Values& want,
                         const Values& have, const Values& bound, Dtype type) {
    verdict.tensors.push_back(judge_tensor(name, lengths, want, have, bound, type));
  };
  const Exact& exact = truth.exact;
  if (p.wants_forward()) {
    judge("o", p.seq_q, exact.o, got.o, truth.bounds.o, p.output_dtype());
    judge("lse", p.seq_q, as_values(exact.lse, p.total_q(), p.heads_q), as_values(got.lse, p.total_q(), p.heads_q),
          as_values(truth.bounds.lse, p.total_q(), p.heads_q), p.lse_dtype());
  }
  if (p.wants_backward()) {
    judge("dq", p.seq_q, exact.dq, got.dq, truth.bounds.dq, p.output_dtype());
    judge("dk", p.seq_k, exact.dk, got.dk, truth.bounds.dk, p.output_dtype());
    judge("dv", p.seq_k, exact.dv, got.dv, truth.bounds.dv, p.output_dtype());
    if (p.d_bias) {
      const Values want = as_values(exact.d_bias);
      const std::vector<std::int64_t> rows = {want.tokens};
      judge("dbias", rows, want, as_values(got.d_bias), as_values(truth.bounds.d_bias), p.lse_dtype());
    }
  }
}

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

void decide(const KernelRun& run, Verdict& verdict) {
  if (!run.refusal.empty()) {
    verdict.state = State::unsupported;
    verdict.reason = run.refusal;
    return;
  }
  if (!run.error.empty()) {
    verdict.state = State::error;
    verdict.reason = run.error;
    return;
  }
  for (const TensorVerdict& tensor : verdict.tensors) {
    if (tensor.wrong > 0) verdict.state = State::fail;
  }
  if (!verdict.findings.empty()) verdict.state = State::fail;
  if (verdict.state == State::fail) return;
  for (const TensorVerdict& tensor : verdict.tensors) {
    if (static_cast<double>(tensor.unspecified) > kMostUnspecified * static_cast<double>(tensor.total)) {
      verdict.reason = fmt::format("no bound can be stated for {} of {} elements of {}", tensor.unspecified, tensor.total,
                                   tensor.tensor);
    }
  }
  if (const std::string powerless = powerless_direction(verdict); !powerless.empty()) {
    verdict.reason = fmt::format("an all-zero {} would pass: the bounds are larger than the values", powerless);
  }
  if (!verdict.reason.empty()) verdict.state = State::untrusted;
}

}  // namespace

PreparedCase prepare(const Kernel& kernel, const Problem& problem, const CheckOptions& options) {
  const Stopwatch watch;
  PreparedCase prepared;
  prepared.problem = problem;
  prepared.unsupported = why_unjudgeable(kernel, problem);
  if (!prepared.unsupported.empty()) return prepared;
  check_size(problem, options.byte_limit);
  prepared.inputs = make_inputs(problem);
  const NumericsProfile profile = make_profile(kernel.numerics(problem), problem);
  prepared.truth = exact_attention_with_bounds(problem, prepared.inputs, profile, bound_mode(problem));
  if (family(problem.fill.family).kind == FamilyKind::exact) {
    apply_closed_form(problem, prepared.inputs, profile, prepared.truth);
  }
  apply_conventions(kernel.table().conventions, problem, prepared.inputs, prepared.truth);
  prepared.seconds = watch.seconds();
  return prepared;
}

Verdict check(const Kernel& kernel, const PreparedCase& prepared, DeviceMemory& memory) {
  const Stopwatch watch;
  Verdict verdict;
  verdict.kernel = kernel.name();
  verdict.request = kernel.request();
  verdict.problem = prepared.problem;
  verdict.reason = prepared.unsupported;
  if (!verdict.reason.empty()) {
    verdict.state = State::unsupported;
    return verdict;
  }
  const KernelRun run = run_kernel(kernel, prepared.problem, prepared.inputs, prepared.truth.exact, memory);
  verdict.findings = run.findings;
  if (run.judgeable()) judge_all(prepared.problem, prepared.truth, run.outputs, verdict);
  decide(run, verdict);
  verdict.seconds = prepared.seconds + watch.seconds();
  return verdict;
}

Verdict check(const Kernel& kernel, const Problem& problem, DeviceMemory& memory, const CheckOptions& options) {
  return check(kernel, prepare(kernel, problem, options), memory);
}

}  // namespace attest

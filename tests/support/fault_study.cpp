// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fault_study.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/oracle/bound.h"
#include "reference/problem/case_text.h"

namespace attest::tiled_faults {
namespace {

struct Errors {
  double largest = 0, squares = 0, values = 0;
  bool torch = false, loose = false, broken = false;
};

Errors errors_of(const Values& want, const Values& got, Dtype type) {
  const bool narrow = type == Dtype::bf16;
  const double relative = narrow ? 1.6e-2 : 1e-3, loose = narrow ? 2e-2 : 1e-2;
  Errors errors;
  for (std::size_t n = 0; n < want.data.size(); ++n) {
    const double w = want.data[n], diff = std::abs(got.data[n] - w);
    errors.broken |= !std::isfinite(diff);
    errors.torch |= !(diff <= 1e-5 + relative * std::abs(w));
    errors.loose |= !(diff <= loose + loose * std::abs(w));
    errors.largest = std::max(errors.largest, diff);
    errors.squares += diff * diff;
    errors.values += w * w;
  }
  return errors;
}

void score(const std::vector<double>& want, const std::vector<double>& got, const std::vector<double>& bound,
           const char* tensor, RuleVerdicts& verdicts) {
  for (std::size_t n = 0; n < want.size(); ++n) {
    if (std::isinf(bound[n]) || want[n] == got[n]) continue;
    const double ratio = std::abs(got[n] - want[n]) / bound[n];
    const double score = std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio;
    if (score <= verdicts.score) continue;
    verdicts.score = score;
    verdicts.tensor = tensor;
  }
}

}  // namespace

FaultStudy::FaultStudy(const std::string& case_text) : problem_(parse_case(case_text)), inputs_(make_inputs(problem_)) {
  attest_numerics numerics = numerics_preset("f32-simt");
  numerics.p_dtype = static_cast<std::int32_t>(problem_.dtype);
  numerics.key_tile = kFaultyTile;
  const NumericsProfile profile = make_profile(numerics, problem_);
  const bool random = family(problem_.fill.family).kind == FamilyKind::random;
  ExactWithBounds truth =
      exact_attention_with_bounds(problem_, inputs_, profile, random ? BoundMode::gen : BoundMode::det);
  exact_ = std::move(truth.exact);
  low_ = low_precision_attention(problem_, inputs_);
  bound_o_ = std::move(truth.bounds.o);
  bound_dq_ = std::move(truth.bounds.dq);
  bound_dk_ = std::move(truth.bounds.dk);
  bound_dv_ = std::move(truth.bounds.dv);
  bound_lse_ = std::move(truth.bounds.lse);
}

RuleVerdicts FaultStudy::judge(const Exact& got) const {
  RuleVerdicts verdicts;
  const auto each = [&](const char* name, const Values& want, const Values& have, const Values& low, const Values& bound) {
    const Errors errors = errors_of(want, have, problem_.dtype), base = errors_of(want, low, problem_.dtype);
    verdicts.torch |= errors.torch;
    verdicts.loose |= errors.loose;
    verdicts.flash |= errors.broken || !(errors.largest <= 2 * base.largest + 1e-5);
    verdicts.nmse |= errors.broken || !(errors.squares <= 5e-4 * errors.values);
    score(want.data, have.data, bound.data, name, verdicts);
  };
  each("o", exact_.o, got.o, low_.o, bound_o_);
  each("dq", exact_.dq, got.dq, low_.dq, bound_dq_);
  each("dk", exact_.dk, got.dk, low_.dk, bound_dk_);
  each("dv", exact_.dv, got.dv, low_.dv, bound_dv_);
  score(exact_.lse, got.lse, bound_lse_, "lse", verdicts);
  verdicts.bound = !(verdicts.score <= 1);
  return verdicts;
}

std::string case_for(Fault fault, const std::string& dtype) {
  std::string text = "dtype=" + dtype + " q=96 k=384 heads=4/2 dim=64 fill=normal@5";
  switch (fault) {
    case Fault::causal_sees_next:
    case Fault::causal_misses_own: return text + " causal=bottom-right";
    case Fault::dropout_not_scaled:
    case Fault::l_after_dropout:
    case Fault::dropout_of_next_head:
    case Fault::dp_not_dropped: return text + " dropout=0.2@3";
    // The slope of a single head is 2^-8: the key at the end of the window has P near 1e-7.
    case Fault::window_one_more:
    case Fault::window_one_less:
      return "dtype=" + dtype + " q=16 k=2900 dim=64 fill=normal@5 causal=bottom-right window=2700,-1 alibi=on";
    case Fault::mask_ignored: return text + " mask=bhqk:0.5";
    case Fault::softcap_slope_missing: return text + " softcap=4";
    default: return text;
  }
}

}  // namespace attest::tiled_faults

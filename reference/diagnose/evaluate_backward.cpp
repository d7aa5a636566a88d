// SPDX-License-Identifier: Apache-2.0
// Gradients under a reading, and the results handed out.
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/diagnose/evaluate.h"

namespace attest::diagnose {
namespace {

Elements elements(std::vector<double> value, std::vector<double> tolerance) {
  return {true, std::move(value), std::move(tolerance)};
}

}  // namespace

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

/// <dO, O> - dLSE of the row that the reading takes it from; false where that row does not exist.
bool Evaluator::delta_of(const Passes& passes, const RowAt& at, const SoftRow& own, double& delta, double& error) const {
  const Reading& r = *passes.backward;
  delta = error = 0;
  if (r.delta_missing) return true;
  RowAt from = at;
  from.i += r.delta_row;
  from.h = (from.h + r.delta_head) % r.problem.heads_q;
  if (from.i < 0 || from.i >= evidence_.problem.seq_q[at.b]) return false;
  const bool elsewhere = r.delta_row != 0 || r.delta_head != 0;
  const SoftRow other = elsewhere ? soft_row(passes.consistent ? r : *passes.forward, from) : SoftRow();
  const SoftRow& row = elsewhere ? other : own;
  if (!row.known) return false;
  std::vector<double> d_o;
  read_query(r, TensorId::d_o, row.at, d_o);
  for (std::size_t c = 0; c < d_o.size(); ++c) {
    delta += d_o[c] * row.o[c];
    error += std::abs(d_o[c]) * row.o_tolerance[c];
  }
  error += (static_cast<double>(d_o.size()) / 8 + 8) * evidence_.numerics.u * norm(d_o) * norm(row.o);
  if (evidence_.d_lse.present() && !r.d_lse_ignored) {
    double d_lse = 0;
    evidence_.d_lse.read(from.b, row_of_token(evidence_.problem, TensorId::o, from.b, from.i), from.h, {&d_lse, 1});
    delta -= d_lse;
    error += 4 * evidence_.numerics.u * std::abs(d_lse);
  }
  return true;
}

Evaluator::Backward Evaluator::backward(const Passes& passes, const RowAt& at, const SoftRow& forward, SoftRow& own,
                                        KeysPtr& keys) const {
  Backward out;
  const Reading& r = *passes.backward;
  const NumericsProfile& numerics = evidence_.numerics;
  own = passes.forward == passes.backward ? forward : soft_row(r, at, keys);
  if (!own.known || !forward.known) return out;
  double delta = 0, delta_error = 0;
  out.known = delta_of(passes, at, passes.consistent ? own : forward, delta, delta_error);
  if (!out.known) return out;
  read_query(r, TensorId::d_o, own.at, out.d_o);
  const double d_o_norm = norm(out.d_o);
  const std::size_t n = own.score.size();
  const double terms = (static_cast<double>(out.d_o.size()) / 8 + 8) * numerics.u;
  const double stored_error = forward.lse_tolerance + 0x1p-23 * std::abs(std::isfinite(forward.lse) ? forward.lse : 0);
  for (auto* list : {&out.p, &out.ds, &out.keep, &out.e_p, &out.e_ds, &out.d_score, &out.e_d_score}) list->assign(n, 0);
  for (std::size_t j = 0; j < n; ++j) {
    if (!std::isfinite(own.score[j]) && !std::isnan(own.score[j])) continue;
    double p = own.p[j];
    double relative = 2 * own.score_error;
    if (!passes.consistent) {
      p = std::isinf(forward.lse) ? 0 : std::exp(own.score[j] - forward.lse);
      relative += stored_error;
    }
    double product = 0;
    for (std::size_t c = 0; c < out.d_o.size(); ++c) product += out.d_o[c] * keys->v(static_cast<std::int64_t>(j), static_cast<std::int64_t>(c));
    double keep = own.keep[j];
    if (!passes.consistent && r.problem.dropout) keep = keep_scale(r) * keeps(r, own.at, static_cast<std::int64_t>(j));
    const double dp = product * keep;
    out.p[j] = p;
    out.keep[j] = keep;
    out.d_score[j] = p * (dp - delta);
    out.e_p[j] = p * (relative + numerics.p_bwd.u) + numerics.p_bwd.subnormal;
    const double own_error = p * (terms * keep * d_o_norm * keys->v_norm[j] + delta_error + 4 * numerics.u * (std::abs(dp) + std::abs(delta))) + numerics.p_bwd.subnormal;
    out.e_d_score[j] = std::abs(out.d_score[j]) * (relative + numerics.p_bwd.u) + own_error;
    const double slope = r.cap_slope_missing ? 1 : own.slope[j];
    out.ds[j] = out.d_score[j] * slope;
    out.e_ds[j] = std::abs(out.ds[j]) * (relative + numerics.p_bwd.u + (r.problem.softcap > 0 ? 0x1p-18 : 0)) + own_error;
  }
  return out;
}

RowResult Evaluator::row(const Passes& passes, const RowAt& at, bool gradients) const {
  RowResult result;
  KeysPtr keys;
  const SoftRow forward = soft_row(*passes.forward, at, keys);
  if (!forward.known) return result;
  result.o = elements(forward.o, forward.o_tolerance);
  result.lse = elements({forward.lse}, {forward.lse_tolerance});
  // What a kernel with a large finite mask value reports as LSE of such a row depends on that value.
  result.lse.known = !(forward.empty && passes.forward->empty_row != EmptyRow::zero);
  if (!gradients) return result;
  SoftRow own;
  const Backward b = backward(passes, at, forward, own, keys);
  if (!b.known) return result;
  const Reading& r = *passes.backward;
  const NumericsProfile& numerics = evidence_.numerics;
  const double scale = r.dq_unscaled ? 1 : r.problem.effective_scale();
  const std::int64_t width = keys->k.cols();
  std::vector<double> dq(static_cast<std::size_t>(width), 0), tolerance(static_cast<std::size_t>(width), numerics.out.subnormal);
  const double sums = (static_cast<double>(b.p.size()) / 8 + 16) * numerics.u;
  for (std::size_t j = 0; j < b.p.size(); ++j) {
    if (b.p[j] == 0) continue;
    for (std::int64_t d = 0; d < width; ++d) {
      const double k = scale * keys->k(static_cast<std::int64_t>(j), d);
      dq[d] += b.ds[j] * k;
      tolerance[d] += (b.e_ds[j] + sums * std::abs(b.ds[j])) * std::abs(k);
    }
  }
  for (std::int64_t d = 0; d < width; ++d) tolerance[d] += numerics.out.u * std::abs(dq[d]);
  result.dq = elements(std::move(dq), std::move(tolerance));
  return result;
}

}  // namespace attest::diagnose

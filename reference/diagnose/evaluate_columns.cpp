// SPDX-License-Identifier: Apache-2.0
// Gradients that are sums over queries, under a reading: dk and dv of keys, dbias of a row.
#include <algorithm>
#include <cmath>

#include "reference/diagnose/evaluate.h"

namespace attest::diagnose {
namespace {

bool counts(GroupSum sum, std::int64_t index, std::int64_t of) {
  return sum == GroupSum::all || (sum == GroupSum::first && index == 0) || (sum == GroupSum::last && index == of - 1);
}

/// Sums of one key/value head.
class ColumnSums {
 public:
  ColumnSums(std::size_t keys, std::int64_t dim, std::int64_t width) : dim_(dim), width_(width) {
    dk_.assign(keys * static_cast<std::size_t>(dim), 0);
    dv_.assign(keys * static_cast<std::size_t>(width), 0);
    e_dk_ = dk_;
    e_dv_ = dv_;
  }
  /// ds and its tolerance already hold the roundings of the sum.
  void add_k(std::size_t x, double ds, double e_ds, double scale, const std::vector<double>& q) {
    for (std::size_t d = 0; d < static_cast<std::size_t>(dim_); ++d) {
      const std::size_t at = x * static_cast<std::size_t>(dim_) + d;
      dk_[at] += ds * scale * q[d];
      e_dk_[at] += e_ds * std::abs(scale * q[d]);
    }
  }
  void add_v(std::size_t x, double p, double e_p, const std::vector<double>& d_o) {
    for (std::size_t c = 0; c < static_cast<std::size_t>(width_); ++c) {
      const std::size_t at = x * static_cast<std::size_t>(width_) + c;
      dv_[at] += p * d_o[c];
      e_dv_[at] += e_p * std::abs(d_o[c]);
    }
  }
  ColumnResult result(const StorageRounding& out) {
    for (std::size_t x = 0; x < dk_.size(); ++x) e_dk_[x] += out.u * std::abs(dk_[x]) + out.subnormal;
    for (std::size_t x = 0; x < dv_.size(); ++x) e_dv_[x] += out.u * std::abs(dv_[x]) + out.subnormal;
    return {{true, std::move(dk_), std::move(e_dk_)}, {true, std::move(dv_), std::move(e_dv_)}};
  }

 private:
  std::int64_t dim_, width_;
  std::vector<double> dk_, dv_, e_dk_, e_dv_;  // [keys, D], [keys, Dv]; e_: tolerances
};

}  // namespace

bool Evaluator::columns_known(const Reading& r) const {
  return r.columns_follow() && r.problem.pad == evidence_.problem.pad && r.problem.seq_k == evidence_.problem.seq_k;
}

ColumnResult Evaluator::columns(const Passes& passes, const HeadAt& head) const {
  if (!columns_known(*passes.backward)) return {};
  return head.keys.empty() ? whole_columns(passes, head) : some_columns(passes, head);
}

ColumnResult Evaluator::whole_columns(const Passes& passes, const HeadAt& head) const {
  const Reading& r = *passes.backward;
  const Problem& contract = evidence_.problem;
  const std::int64_t n = contract.seq_k[head.b], group = contract.group();
  const NumericsProfile& numerics = evidence_.numerics;
  const double scale = r.dk_unscaled ? 1 : r.problem.effective_scale();
  const double sums = (static_cast<double>(contract.seq_q[head.b] * group) / 8 + 16) * numerics.u;
  ColumnSums total(static_cast<std::size_t>(n), contract.dim, contract.width_v());
  for (std::int64_t h = 0; h < contract.heads_q; ++h) {
    if (!counts(r.group, h % group, group)) continue;
    const bool has_k = key_head(r, h) == head.head_kv, has_v = value_head(r, h) == head.head_kv;
    for (std::int64_t i = 0; (has_k || has_v) && i < contract.seq_q[head.b]; ++i) {
      KeysPtr keys;
      const RowAt at{head.b, h, i};
      const SoftRow forward = soft_row(*passes.forward, at, keys);
      SoftRow own;
      const Backward row = backward(passes, at, forward, own, keys);
      if (!row.known) return {};
      for (std::size_t j = 0; j < static_cast<std::size_t>(n); ++j) {
        if (row.p[j] == 0) continue;
        if (has_k) total.add_k(j, row.ds[j], row.e_ds[j] + sums * std::abs(row.ds[j]), scale, own.q);
        const double keep = r.dv_undropped ? 1 : row.keep[j];
        if (has_v) total.add_v(j, row.p[j] * keep, (row.e_p[j] + sums * row.p[j]) * keep, row.d_o);
      }
    }
  }
  return total.result(numerics.out);
}

/// <dO, O> - dLSE from the O of the evidence.
bool Evaluator::delta_of_captured(const Reading& r, const RowAt& at, double& delta, double& error) const {
  const Problem& p = evidence_.problem;
  delta = error = 0;
  if (r.delta_missing) return true;
  const RowAt from{at.b, (at.h + r.delta_head) % p.heads_q, at.i + r.delta_row};
  if (from.i < 0 || from.i >= p.seq_q[at.b]) return false;
  const std::int64_t row = row_of_token(p, TensorId::o, from.b, from.i);
  std::vector<double> o(static_cast<std::size_t>(p.width_v())), d_o;
  evidence_.of(TensorId::o).read(from.b, row, from.h, o);
  read_query(r, TensorId::d_o, from, d_o);
  for (std::size_t c = 0; c < o.size(); ++c) {
    delta += d_o[c] * o[c];
    error += std::abs(d_o[c]) * (std::abs(o[c]) * evidence_.numerics.out.u + evidence_.numerics.out.subnormal);
  }
  error += (static_cast<double>(o.size()) / 8 + 8) * evidence_.numerics.u * norm(d_o) * norm(o);
  if (evidence_.d_lse.present() && !r.d_lse_ignored) {
    double d_lse = 0;
    evidence_.d_lse.read(from.b, row, from.h, {&d_lse, 1});
    delta -= d_lse;
    error += 4 * evidence_.numerics.u * std::abs(d_lse);
  }
  return true;
}

ColumnResult Evaluator::some_columns(const Passes& passes, const HeadAt& head) const {
  const Reading& r = *passes.backward;
  const Problem& p = evidence_.problem;
  const bool other_softmax = passes.consistent && passes.forward != passes.backward;
  if (other_softmax || r.tile_fault != TileFault::none || r.lse != LseKind::natural || passes.forward->lse != LseKind::natural) return {};
  if (!evidence_.lse.present() || !evidence_.of(TensorId::o).present()) return {};
  const NumericsProfile& numerics = evidence_.numerics;
  const std::size_t n = head.keys.size();
  const double scale = r.dk_unscaled ? 1 : r.problem.effective_scale();
  const double sums = (static_cast<double>(p.seq_q[head.b] * p.group()) / 8 + 16) * numerics.u;
  ColumnSums total(n, p.dim, p.width_v());
  for (std::int64_t h = 0; h < p.heads_q; ++h) {
    const bool has_k = key_head(r, h) == head.head_kv, has_v = value_head(r, h) == head.head_kv;
    if (!counts(r.group, h % p.group(), p.group()) || !(has_k || has_v)) continue;
    Keys keys;
    keys.j = head.keys;
    keys.k.resize(static_cast<Eigen::Index>(n), p.dim);
    keys.v.resize(static_cast<Eigen::Index>(n), p.width_v());
    for (std::size_t x = 0; x < n; ++x) {
      const std::int64_t row = row_of_token(p, TensorId::k, head.b, head.keys[x]);
      evidence_.of(TensorId::k).read(head.b, row, key_head(r, h), {keys.k.row(static_cast<Eigen::Index>(x)).data(), static_cast<std::size_t>(p.dim)});
      evidence_.of(TensorId::v).read(head.b, row, value_head(r, h), {keys.v.row(static_cast<Eigen::Index>(x)).data(), static_cast<std::size_t>(p.width_v())});
      keys.k_norm.push_back(keys.k.row(static_cast<Eigen::Index>(x)).norm());
      keys.v_norm.push_back(keys.v.row(static_cast<Eigen::Index>(x)).norm());
    }
    std::vector<double> d_o;
    for (std::int64_t i = 0; i < p.seq_q[head.b]; ++i) {
      SoftRow own;
      own.at = {head.b, h, i};
      double lse = 0;
      evidence_.lse.read(head.b, row_of_token(p, TensorId::o, head.b, i), h, {&lse, 1});
      if (lse == -HUGE_VAL) continue;
      read_query(r, TensorId::q, own.at, own.q);
      score(r, keys, own);
      if (std::all_of(own.score.begin(), own.score.end(), [](double s) { return s == -HUGE_VAL; })) continue;
      read_query(r, TensorId::d_o, own.at, d_o);
      double delta = 0, delta_error = 0;
      if (!delta_of_captured(r, own.at, delta, delta_error)) return {};
      const double d_o_norm = norm(d_o);
      const double terms = (static_cast<double>(d_o.size()) / 8 + 8) * numerics.u;
      const double relative = 2 * own.score_error + 0x1p-23 * std::abs(lse) + numerics.p_bwd.u;
      for (std::size_t x = 0; x < n; ++x) {
        if (own.score[x] == -HUGE_VAL) continue;
        const double weight = std::exp(own.score[x] - lse);
        const double keep = r.problem.dropout ? keep_scale(r) * keeps(r, own.at, keys.j[x]) : 1;
        double product = 0;
        for (std::size_t c = 0; c < d_o.size(); ++c) product += d_o[c] * keys.v(static_cast<Eigen::Index>(x), static_cast<Eigen::Index>(c));
        const double ds = weight * (product * keep - delta) * (r.cap_slope_missing ? 1 : own.slope[x]);
        const double e_ds = std::abs(ds) * (relative + sums + (r.problem.softcap > 0 ? 0x1p-18 : 0)) + numerics.p_bwd.subnormal +
                            weight * (terms * keep * d_o_norm * keys.v_norm[x] + delta_error + 4 * numerics.u * (std::abs(product * keep) + std::abs(delta)));
        if (has_k) total.add_k(x, ds, e_ds, scale, own.q);
        const double kept = r.dv_undropped ? 1 : keep;
        if (has_v) total.add_v(x, weight * kept, (weight * (relative + sums) + numerics.p_bwd.subnormal) * kept, d_o);
      }
    }
  }
  return total.result(numerics.out);
}

Elements Evaluator::bias_row(const Passes& passes, const RowAt& at) const {
  const Reading& r = *passes.backward;
  const Problem& p = evidence_.problem;
  if (!columns_known(r)) return {};
  const Extents& shape = evidence_.d_bias.extents();
  const NumericsProfile& numerics = evidence_.numerics;
  Elements sum{true, std::vector<double>(static_cast<std::size_t>(shape.width), 0), std::vector<double>(static_cast<std::size_t>(shape.width), 0)};
  const std::int64_t sequences = shape.batch == 1 ? p.batch() : 1, heads = shape.heads == 1 ? p.heads_q : 1;
  const double terms = static_cast<double>(sequences * heads) * static_cast<double>((shape.rows == 1 ? p.max_q() : 1) * (shape.width == 1 ? p.max_k() : 1));
  const double sums = (terms / 8 + 16) * numerics.u;
  for (std::int64_t n = 0; n < sequences * heads; ++n) {
    if (!counts(r.bias_sum, n, sequences * heads)) continue;
    const std::int64_t b = shape.batch == 1 ? n / heads : at.b, h = shape.heads == 1 ? n % heads : at.h;
    const std::int64_t first = shape.rows == 1 ? 0 : at.i, last = shape.rows == 1 ? p.seq_q[b] : std::min(p.seq_q[b], at.i + 1);
    for (std::int64_t i = first; i < last; ++i) {
      KeysPtr keys;
      const SoftRow forward = soft_row(*passes.forward, {b, h, i}, keys);
      SoftRow own;
      const Backward row = backward(passes, {b, h, i}, forward, own, keys);
      if (!row.known) return {};
      for (std::size_t j = 0; j < row.p.size(); ++j) {
        if (row.p[j] == 0) continue;
        const double factor = (r.d_bias_scaled ? r.problem.effective_scale() : 1) * (r.d_bias_in_softcap ? own.slope[j] : 1);
        const std::size_t x = shape.width == 1 ? 0 : j;
        sum.value[x] += factor * row.d_score[j];
        sum.tolerance[x] += std::abs(factor) * (row.e_d_score[j] + sums * std::abs(row.d_score[j]));
      }
    }
  }
  const DtypeFormat& stored = format_of(evidence_.d_bias.type() == Dtype::f64 ? p.lse_dtype() : evidence_.d_bias.type());
  for (std::size_t x = 0; x < sum.value.size(); ++x) sum.tolerance[x] += stored.unit_roundoff() * std::abs(sum.value[x]) + std::max(stored.min_subnormal(), 0x1p-126);
  return sum;
}

}  // namespace attest::diagnose

// SPDX-License-Identifier: Apache-2.0
#include "tests/support/tiled_faults.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/oracle/visibility.h"
#include "reference/problem/dtype.h"

namespace attest::tiled_faults {
namespace {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();
constexpr std::int64_t kFaultyKey = 63;   // the last of a tile
constexpr std::int64_t kFaultyPlace = 2;  // tile

constexpr FaultName kFaults[] = {
    {Fault::o_not_rescaled, "O not rescaled in one tile", true},
    {Fault::l_not_rescaled, "l not rescaled in one tile", true},
    {Fault::causal_sees_next, "causal sees j = i + 1", true},
    {Fault::causal_misses_own, "causal misses j = i", true},
    {Fault::key_dropped, "one key dropped at a tile edge", true},
    {Fault::key_dropped_from_pv, "one key dropped from P V only", true},
    {Fault::key_twice, "one key counted twice", true},
    {Fault::scale_off, "scale off by 0.1%", true},
    {Fault::dropout_not_scaled, "missing 1 / (1 - p)", true},
    {Fault::l_after_dropout, "l summed after dropout", true},
    {Fault::wrong_kv_head, "wrong kv head for one query head", true},
    {Fault::lse_log2, "LSE in log2 units", true},
    {Fault::no_maximum, "exp without maximum", true},
    {Fault::stale_v_tile, "stale V tile", true},
    {Fault::stale_k_tile, "stale K tile", true},
    {Fault::window_one_more, "window one key too wide", true},
    {Fault::window_one_less, "window one key too narrow", true},
    {Fault::one_padding_key, "one zero padding key in l", true},
    {Fault::many_padding_keys, "32 zero padding keys in l", true},
    {Fault::delta_of_next_row, "D of the neighbouring row", true},
    {Fault::dq_tile_lost, "one key tile lost in dQ", true},
    {Fault::query_row_skipped, "last query of a tile skipped", true},
    {Fault::split_unweighted, "split keys merged without weights", true},
    {Fault::mask_ignored, "mask and -inf bias ignored in one tile", true},
    {Fault::dropout_of_next_head, "dropout mask of the next head", true},
    {Fault::dp_not_dropped, "dropout not applied to dP", false},
    {Fault::softcap_slope_missing, "softcap's derivative missing", false},
    {Fault::o_in_input_type, "O kept in 16 bits between tiles", false},
    {Fault::l_in_f16, "l accumulated in f16", false},
    {Fault::exp_in_bf16, "exp in bf16", false},
    {Fault::p_in_e4m3, "P rounded to e4m3", false},
    {Fault::output_truncated, "outputs truncated", false},
    {Fault::delta_in_input_type, "D rounded to 16 bits", false},
};

float rounded(Dtype type, float x) { return static_cast<float>(round_to(type, static_cast<double>(x))); }

float truncated(Dtype type, float x) {
  const double near = round_to(type, static_cast<double>(x));
  if (std::abs(near) <= std::abs(static_cast<double>(x))) return static_cast<float>(near);
  const DtypeFormat& format = format_of(type);
  const double step = std::max(std::ldexp(1.0, std::ilogb(near * (1 - format.unit_roundoff())) + 1 - format.precision),
                               format.min_subnormal());
  return static_cast<float>(near - std::copysign(step, near));
}

/// One query head of one sequence.
class Head {
 public:
  Head(const Problem& p, const Inputs& in, Fault fault, std::int64_t b, std::int64_t h, std::int64_t first_q,
       std::int64_t first_k)
      : p_(p), in_(in), fault_(fault), b_(b), h_(h), first_q_(first_q), first_k_(first_k),
        sq_(p.seq_q[static_cast<std::size_t>(b)]), sk_(p.seq_k[static_cast<std::size_t>(b)]), kv_(h / p.group()),
        type_(p.dtype), scale_(static_cast<float>(p.effective_scale())),
        keep_(static_cast<float>(1 / (1 - p.effective_dropout()))), cap_(static_cast<float>(p.effective_softcap())) {
    if (fault == Fault::wrong_kv_head && h == p.group() - 1) kv_ = (kv_ + 1) % p.heads_kv;
    if (fault == Fault::scale_off) scale_ *= 1.001F;
  }

  void forward(Exact& out) {
    lse_.assign(static_cast<std::size_t>(sq_), kNegInf);
    for (std::int64_t i = 0; i < sq_; ++i) forward_row(i, out);
  }

  void backward(const Exact& out, Exact& sums) {
    for (std::int64_t i = 0; i < sq_; ++i) {
      if (fault_ == Fault::query_row_skipped && i % kFaultyTile == kFaultyTile - 1) continue;
      backward_row(i, out, sums);
    }
  }

 private:
  bool is(Fault fault) const { return fault_ == fault; }

  bool sees(std::int64_t i, std::int64_t j) const {
    bool seen = visible(p_, in_, b_, h_, i, j);
    const std::int64_t diagonal = i + (p_.causal == Causal::top_left ? 0 : sk_ - sq_);
    if (is(Fault::causal_sees_next) && p_.causal != Causal::none) seen |= j == diagonal + 1;
    if (is(Fault::causal_misses_own) && p_.causal != Causal::none) seen &= j != diagonal;
    if (p_.window && p_.window->left >= 0) {
      if (is(Fault::window_one_more)) seen |= j == diagonal - p_.window->left - 1;
      if (is(Fault::window_one_less)) seen &= j != diagonal - p_.window->left;
    }
    const bool unmasked = is(Fault::mask_ignored) && j / kFaultyTile == kFaultyPlace;
    if (p_.mask && unmasked) seen = true;
    return seen && !(is(Fault::key_dropped) && j == kFaultyKey);
  }

  float score(std::int64_t i, std::int64_t j, float* slope = nullptr) const {
    const std::int64_t place = is(Fault::stale_k_tile) && j / kFaultyTile == kFaultyPlace ? j - kFaultyTile : j;
    const auto q = in_.q.row(first_q_ + i, h_), k = in_.k.row(first_k_ + place, kv_);
    float s = 0;
    for (std::size_t d = 0; d < q.size(); ++d) s += static_cast<float>(q[d]) * static_cast<float>(k[d]);
    s *= scale_;
    if (slope != nullptr) *slope = 1;
    if (cap_ > 0) {
      const float t = std::tanh(s / cap_);
      s = cap_ * t;
      if (slope != nullptr && !is(Fault::softcap_slope_missing)) *slope = 1 - t * t;
    }
    if (!in_.bias.empty()) {
      const auto bias = static_cast<float>(in_.bias.at(b_, h_, i, j));
      const bool ignored = is(Fault::mask_ignored) && j / kFaultyTile == kFaultyPlace && std::isinf(bias);
      if (!ignored) s += bias;
    }
    if (p_.alibi) s -= static_cast<float>(in_.alibi_slopes[static_cast<std::size_t>(h_)]) * static_cast<float>(std::abs(i + sk_ - sq_ - j));
    return sees(i, j) ? s : kNegInf;
  }

  float kept_factor(std::int64_t i, std::int64_t j) const {
    if (!p_.dropout) return 1;
    return kept(p_, b_, is(Fault::dropout_of_next_head) ? h_ + 1 : h_, i, j) ? 1.0F : 0.0F;
  }

  float stored_p(float x) const { return is(Fault::p_in_e4m3) ? rounded(Dtype::f8e4m3, x) : rounded(type_, x); }

  float stored(float x) const {
    const Dtype out = p_.output_dtype();
    return is(Fault::output_truncated) ? truncated(out, x) : rounded(out, x);
  }

  struct State {
    float m = kNegInf, l = 0;
    std::vector<float> acc;  // [Dv]
  };

  void add_tile(std::int64_t i, std::int64_t first, State& state) const {
    const std::int64_t last = std::min(first + kFaultyTile, sk_), tile = first / kFaultyTile;
    std::vector<float> e(static_cast<std::size_t>(last - first));
    float top = state.m;
    for (std::int64_t j = first; j < last; ++j) top = std::max(top, e[static_cast<std::size_t>(j - first)] = score(i, j));
    if (top == kNegInf) return;
    if (is(Fault::no_maximum)) top = 0;
    const float alpha = state.m == kNegInf ? 0 : std::exp(state.m - top);
    const bool here = tile == kFaultyPlace;
    for (float& x : state.acc) x *= is(Fault::o_not_rescaled) && here ? 1 : alpha;
    state.l *= is(Fault::l_not_rescaled) && here ? 1 : alpha;
    state.m = top;
    for (std::int64_t j = first; j < last; ++j) {
      float x = std::exp(e[static_cast<std::size_t>(j - first)] - top);
      if (is(Fault::exp_in_bf16)) x = rounded(Dtype::bf16, x);
      const float z = kept_factor(i, j);
      const float times = is(Fault::key_twice) && j == kFaultyKey ? 2 : 1;
      state.l += times * (is(Fault::l_after_dropout) ? z * x : x);
      if (is(Fault::l_in_f16)) state.l = rounded(Dtype::f16, state.l);
      if (z == 0 || (is(Fault::key_dropped_from_pv) && j == kFaultyKey)) continue;
      const std::int64_t place = is(Fault::stale_v_tile) && here ? j - kFaultyTile : j;
      const float weight = times * stored_p(x);
      const auto v = in_.v.row(first_k_ + place, kv_);
      for (std::size_t c = 0; c < v.size(); ++c) state.acc[c] += weight * static_cast<float>(v[c]);
    }
    if (is(Fault::o_in_input_type)) {
      for (float& x : state.acc) x = rounded(type_, x);
    }
  }

  void forward_row(std::int64_t i, Exact& out) {
    const auto width = static_cast<std::size_t>(p_.width_v());
    State state = {kNegInf, 0, std::vector<float>(width, 0)}, other = state;
    const std::int64_t half = is(Fault::split_unweighted) ? (sk_ / 2 + kFaultyTile - 1) / kFaultyTile * kFaultyTile : sk_;
    for (std::int64_t first = 0; first < sk_; first += kFaultyTile) add_tile(i, first, first < half ? state : other);
    if (other.m > kNegInf) {  // parts are added as if they had one maximum
      for (std::size_t c = 0; c < width; ++c) state.acc[c] += other.acc[c];
      state.l += other.l;
      state.m = std::max(state.m, other.m);
    }
    const float padding = is(Fault::one_padding_key) ? 1 : is(Fault::many_padding_keys) ? 32 : 0;
    if (state.m > kNegInf) state.l += padding * std::exp(-state.m);
    if (state.m == kNegInf || state.l == 0) {
      out.lse[static_cast<std::size_t>((first_q_ + i) * p_.heads_q + h_)] = kNegInf;
      return;
    }
    const float factor = p_.dropout && !is(Fault::dropout_not_scaled) ? keep_ : 1;
    for (std::size_t c = 0; c < width; ++c)
      out.o.at(first_q_ + i, h_, static_cast<std::int64_t>(c)) = stored(state.acc[c] / state.l * factor);
    const float lse = state.m + std::log(state.l);
    lse_[static_cast<std::size_t>(i)] = lse;
    out.lse[static_cast<std::size_t>((first_q_ + i) * p_.heads_q + h_)] = is(Fault::lse_log2) ? lse * 1.44269504F : lse;
  }

  float delta(std::int64_t i, const Exact& out) const {
    const std::int64_t row = is(Fault::delta_of_next_row) ? (i + 1) % sq_ : i;
    const auto o = out.o.row(first_q_ + row, h_), d_o = in_.d_o.row(first_q_ + row, h_);
    float sum = 0;
    for (std::size_t c = 0; c < o.size(); ++c) sum += static_cast<float>(o[c]) * static_cast<float>(d_o[c]);
    return is(Fault::delta_in_input_type) ? rounded(type_, sum) : sum;
  }

  void backward_row(std::int64_t i, const Exact& out, Exact& sums) const {
    const float lse = lse_[static_cast<std::size_t>(i)];
    if (lse == kNegInf) return;
    const float d = delta(i, out);
    const auto d_o = in_.d_o.row(first_q_ + i, h_), q = in_.q.row(first_q_ + i, h_);
    const std::int64_t group = h_ / p_.group();
    for (std::int64_t j = 0; j < sk_; ++j) {
      float slope = 1;
      const float s = score(i, j, &slope);
      if (s == kNegInf) continue;
      const float probability = std::exp(s - lse), z = kept_factor(i, j) * (p_.dropout ? keep_ : 1);
      const auto v = in_.v.row(first_k_ + j, kv_), k = in_.k.row(first_k_ + j, kv_);
      float dp = 0;
      for (std::size_t c = 0; c < v.size(); ++c) dp += static_cast<float>(v[c]) * static_cast<float>(d_o[c]);
      if (!is(Fault::dp_not_dropped)) dp *= z;
      const float ds = rounded(type_, probability * (dp - d) * slope);
      const float weight = z == 0 ? 0 : rounded(type_, probability) * z;
      for (std::size_t c = 0; c < v.size(); ++c)
        add(sums.dv, first_k_ + j, group, c, weight * static_cast<float>(d_o[c]));
      for (std::size_t c = 0; c < q.size(); ++c) {
        add(sums.dk, first_k_ + j, group, c, ds * static_cast<float>(q[c]));
        if (is(Fault::dq_tile_lost) && j / kFaultyTile == kFaultyPlace) continue;
        add(sums.dq, first_q_ + i, h_, c, ds * static_cast<float>(k[c]));
      }
    }
  }

  /// Sums in float32, kept in the doubles of the output.
  static void add(Values& values, std::int64_t token, std::int64_t head, std::size_t c, float x) {
    double& sum = values.at(token, head, static_cast<std::int64_t>(c));
    sum = static_cast<float>(sum) + x;
  }

  const Problem& p_;
  const Inputs& in_;
  Fault fault_;
  std::int64_t b_, h_, first_q_, first_k_, sq_, sk_, kv_;
  Dtype type_;
  float scale_, keep_, cap_;
  std::vector<float> lse_;  // [Sq] natural
};

Exact outputs_of(const Problem& p) {
  Exact out;
  out.o = Values(p.total_q(), p.heads_q, p.width_v());
  out.lse.assign(static_cast<std::size_t>(p.total_q() * p.heads_q), 0);
  if (!p.wants_backward()) return out;
  out.dq = Values(p.total_q(), p.heads_q, p.dim);
  out.dk = Values(p.total_k(), p.heads_kv, p.dim);
  out.dv = Values(p.total_k(), p.heads_kv, p.width_v());
  return out;
}

}  // namespace

std::span<const FaultName> faults() { return kFaults; }

Exact faulty_attention(const Problem& p, const Inputs& inputs, Fault fault) {
  Exact out = outputs_of(p);
  std::int64_t first_q = 0, first_k = 0;
  for (std::int64_t b = 0; b < p.batch(); ++b) {
    for (std::int64_t h = 0; h < p.heads_q; ++h) {
      Head head(p, inputs, fault, b, h, first_q, first_k);
      head.forward(out);
      if (p.wants_backward()) head.backward(out, out);
    }
    first_q += p.seq_q[static_cast<std::size_t>(b)];
    first_k += p.seq_k[static_cast<std::size_t>(b)];
  }
  const auto scale = static_cast<float>(p.effective_scale()) * (fault == Fault::scale_off ? 1.001F : 1.0F);
  const Dtype type = p.output_dtype();
  const auto finish = [&](Values& values, float factor) {
    for (double& x : values.data) {
      const float y = static_cast<float>(x) * factor;
      x = fault == Fault::output_truncated ? truncated(type, y) : rounded(type, y);
    }
  };
  finish(out.dq, scale);
  finish(out.dk, scale);
  finish(out.dv, 1);
  return out;
}

Exact low_precision_attention(const Problem& p, const Inputs& inputs) {
  Exact out = outputs_of(p);
  const auto round = [&](double x) { return round_to(p.dtype, x); };
  std::int64_t first_q = 0, first_k = 0;
  const double keep = 1 / (1 - p.effective_dropout());
  for (std::int64_t b = 0; b < p.batch(); ++b) {
    const std::int64_t sq = p.seq_q[static_cast<std::size_t>(b)], sk = p.seq_k[static_cast<std::size_t>(b)];
    for (std::int64_t h = 0; h < p.heads_q; ++h) {
      const std::int64_t kv = h / p.group();
      std::vector<double> prob(static_cast<std::size_t>(sk)), dp(prob.size()), slope(prob.size(), 1);
      for (std::int64_t i = 0; i < sq; ++i) {
        const auto q = inputs.q.row(first_q + i, h);
        double top = kNegInf, l = 0;
        for (std::int64_t j = 0; j < sk; ++j) {
          const auto k = inputs.k.row(first_k + j, kv);
          double s = 0;
          for (std::size_t d = 0; d < q.size(); ++d) s += q[d] * k[d];
          s = round(round(s) * p.effective_scale());
          if (p.softcap > 0) {
            const double t = round(std::tanh(s / p.softcap));
            s = round(p.softcap * t);
            slope[static_cast<std::size_t>(j)] = 1 - t * t;
          }
          if (!inputs.bias.empty()) s = round(s + inputs.bias.at(b, h, i, j));
          if (p.alibi) s = round(s - inputs.alibi_slopes[static_cast<std::size_t>(h)] * static_cast<double>(std::abs(i + sk - sq - j)));
          if (!visible(p, inputs, b, h, i, j)) s = kNegInf;
          prob[static_cast<std::size_t>(j)] = s;
          top = std::max(top, s);
        }
        if (top == kNegInf) continue;
        for (double& x : prob) l += x = std::exp(x - top);
        for (double& x : prob) x = round(x / l);
        for (std::int64_t c = 0; c < p.width_v(); ++c) {
          double sum = 0;
          for (std::int64_t j = 0; j < sk; ++j) {
            if (kept(p, b, h, i, j)) sum += round(prob[static_cast<std::size_t>(j)] * keep) * inputs.v.at(first_k + j, kv, c);
          }
          out.o.at(first_q + i, h, c) = round(sum);
        }
        if (!p.wants_backward()) continue;
        double delta = 0;
        for (std::int64_t j = 0; j < sk; ++j) {
          double sum = 0;
          for (std::int64_t c = 0; c < p.width_v(); ++c) sum += inputs.d_o.at(first_q + i, h, c) * inputs.v.at(first_k + j, kv, c);
          dp[static_cast<std::size_t>(j)] = kept(p, b, h, i, j) ? round(round(sum) * keep) : 0;
          delta += prob[static_cast<std::size_t>(j)] * dp[static_cast<std::size_t>(j)];
        }
        for (std::int64_t j = 0; j < sk; ++j) {
          const auto n = static_cast<std::size_t>(j);
          const double ds = round(round(round(prob[n] * (dp[n] - delta)) * slope[n]) * p.effective_scale());
          const double weight = kept(p, b, h, i, j) ? round(prob[n] * keep) : 0;
          for (std::int64_t c = 0; c < p.dim; ++c) {
            out.dq.at(first_q + i, h, c) += ds * inputs.k.at(first_k + j, kv, c);
            out.dk.at(first_k + j, kv, c) += ds * inputs.q.at(first_q + i, h, c);
          }
          for (std::int64_t c = 0; c < p.width_v(); ++c)
            out.dv.at(first_k + j, kv, c) += weight * inputs.d_o.at(first_q + i, h, c);
        }
      }
    }
    first_q += sq;
    first_k += sk;
  }
  for (Values* values : {&out.dq, &out.dk, &out.dv}) {
    for (double& x : values->data) x = round(x);
  }
  return out;
}

}  // namespace attest::tiled_faults

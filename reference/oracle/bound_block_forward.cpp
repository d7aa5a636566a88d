// SPDX-License-Identifier: Apache-2.0
// Bounds of o and lse, and the error of D that follows from that of o.
#include <algorithm>
#include <cmath>

#include "reference/oracle/bound_block.h"
#include "reference/problem/dtype.h"

namespace attest {

template <typename Rule>
void BlockSweep<Rule>::finish_forward(const RowBlock& block, std::vector<RowState>& rows) {
  const std::int64_t n = keys_.last - keys_.first, count = block.count;
  const auto weights = [&](int index) { return weight_[index].topLeftCorner(count, n); };
  const auto v = group_->v.x.middleRows(keys_.first, n);
  const auto magnitudes = group_->v.weight.middleRows(keys_.first, n);
  if constexpr (!Rule::kSquares) {
    const RealMatrix<Real> squares = magnitudes.cwiseAbs2();
    m2_.noalias() = weights(0) * squares;
  } else {
    const auto& squares = magnitudes;
    m2_.noalias() = weights(0) * squares;
    r2_.noalias() = weights(1) * squares;
    if (rule_.exact_shared()) {
      eta2_.noalias() = weights(2) * squares;
      eta1_.noalias() = weights(3) * v;
    }
  }
  for (std::int64_t r = 0; r < count; ++r) finish_row(block, r, rows[r]);
}

// Error of o before it is rounded to its type, in its own scale; `accumulation` gets the part of the product's sum.
template <typename Rule>
double BlockSweep<Rule>::o_error(std::int64_t r, std::int64_t c, const RowState& state, double o,
                            double& accumulation) const {
  const NumericsProfile& n = rules_.profile;
  const RowErrors& errors = state.errors;
  const double unit2 = units_.v * units_.v;
  const double m2 = static_cast<double>(m2_(r, c)) * unit2;
  // Float's own error in M2 - o^2 must not make the variance too small.
  const double slack = sizeof(Real) == 4 ? 4e-6 * m2 : 0;
  const double variance = std::max(m2 - o * o, 0.0) + slack;
  const double direct = errors.flushed + errors.row_sum + 4 * n.u;
  if constexpr (Rule::kSquares) {
    double r2 = static_cast<double>(r2_(r, c)) * unit2;
    const double p2v2 = r2;
    if (n.p.u == 0) r2 *= n.input_error * n.input_error;  // the weights were p^2
    if (n.l_from_rounded) r2 = std::pow(std::sqrt(r2) + std::abs(o) * std::sqrt(errors.rounded), 2);
    double h = errors.shared * variance;
    if (rule_.exact_shared()) {
      const double exact = static_cast<double>(eta2_(r, c)) * unit2 -
                           2 * o * static_cast<double>(eta1_(r, c)) * units_.v + o * o * errors.shared_sum;
      h = std::min(h, std::max(exact, 0.0));
    }
    accumulation = rule_.accumulation(state.facts, o, r2, p2v2);
    return rules_.lambda * std::sqrt(r2 + h) + std::abs(o) * (direct + rules_.common_p) + accumulation;
  } else {
    const double keep = scores_.has_dropout() ? 1 / (1 - problem_.effective_dropout()) : 1;
    const double low = group_->v_low[c], high = group_->v_high[c];
    const double largest = std::max(std::abs(low), std::abs(high)) * keep;
    const double hull = scores_.has_dropout() ? 2 * largest : high - low;
    const double linear = errors.shared == 0 || variance == 0 ? 0 : errors.shared * std::sqrt(variance);
    const double shared = std::min(linear, hull);
    const double magnitude = std::sqrt(m2) + std::min(linear, largest);
    accumulation = 0;
    return shared +
           magnitude * (n.p.u * (n.l_from_rounded ? 2 : 1) + n.input_error +
                        n.pv.det(state.facts.keys, 2 * n.key_tiles(state.facts.keys))) +
           std::min(errors.flushed * largest, magnitude) + (std::abs(o) + shared) * (errors.row_sum + 4 * n.u);
  }
}

template <typename Rule>
void BlockSweep<Rule>::finish_row(const RowBlock& block, std::int64_t r, RowState& state) {
  const HeadSlice& head = block.head;
  const NumericsProfile& n = rules_.profile;
  const std::int64_t token = head.first_q + block.i + r, place = token * problem_.heads_q + head.h;
  if (state.empty) return;  // bounds stay 0
  out_.bounds.lse[place] = state.errors.lse;
  out_.trust.rows[place] = state.errors.trusted;
  double d_variance = 0, d_stored = 0, d_rounded = 0, d_products = 0, d_linear = 0, d_sizes = 0;
  for (std::int64_t c = 0; c < rules_.dim_v; ++c) {
    const double o = exact_.o.at(token, head.h, c);
    double accumulation = 0;
    const double bound = last_rounding(o_error(r, c, state, o, accumulation), o);
    out_.bounds.o.at(token, head.h, c) = bound;
    if (!rules_.backward) continue;
    const double g = inputs_.d_o.at(token, head.h, c) / rules_.grad_unit;
    // An O that its type cannot hold is stored as infinity: delta is infinite then, and with it dS of the whole row.
    state.errors.overflows |= n.delta_from_stored_o && std::abs(o) >= n.out.max * (1 + n.out.u / 2);
    d_variance += g * g * accumulation * accumulation;
    if (n.delta_from_stored_o) {
      d_stored += g * g * (n.out.u * o * n.out.u * o + n.out.subnormal * n.out.subnormal / 4);
      if (Rule::kSquares && n.p.u < n.out.u) d_rounded += g * (round_to(problem_.output_dtype(), o, Overflow::saturate) - o);
    }
    d_products += g * o * g * o;
    d_linear += std::abs(g) * bound;
    d_sizes += std::abs(g) * (std::abs(o) + bound);
  }
  if (!rules_.backward) return;
  const double width = static_cast<double>(rules_.dim_v), d = std::abs(state.facts.d);
  const double subtraction = rules_.has_d_lse ? n.u * std::abs(state.facts.delta) : 0;
  if constexpr (Rule::kSquares) {
    const double linear = d * (state.errors.flushed + state.errors.row_sum + 4 * n.u + rules_.common_p) +
                          rules_.lambda * n.u * std::sqrt(width) * (std::sqrt(d_products) + d) + subtraction;
    d_variance += state.errors.d_variance;
    // Roundings of o that are unlike each other, or, where o is nearly one row of v, known: those of the exact o.
    const double random = rules_.lambda * std::sqrt(d_variance + d_stored) + linear;
    const double beside = rules_.lambda * std::sqrt(d_variance) + linear, known = std::abs(d_rounded);
    state.errors.d = std::max(random, known + beside);
    state.errors.d_deviation = std::max(random / rules_.lambda, std::hypot(known, beside / rules_.lambda));
  } else {
    state.errors.d = d_linear + width * n.u * d_sizes + subtraction;
  }
}

template void BlockSweep<GenRow<float>>::finish_forward(const RowBlock&, std::vector<RowState>&);
template void BlockSweep<GenRow<double>>::finish_forward(const RowBlock&, std::vector<RowState>&);
template void BlockSweep<DetRow>::finish_forward(const RowBlock&, std::vector<RowState>&);

}  // namespace attest

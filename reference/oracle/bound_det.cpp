// SPDX-License-Identifier: Apache-2.0
// The worst-case bound of a row; see docs/numerics.md.
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/oracle/bound_row.h"

namespace attest {
namespace {

constexpr double kNegligible = 0x1p-60;
constexpr double kTrusted = 2.0;  // score error beyond which a kernel may legitimately overflow
constexpr double kExpFlushed = 0x1p-126;

RealRow<double> growth(const RealRow<double>& x) {
  return x.unaryExpr([](double e) { return std::expm1(std::min(e, 300.0)); });
}

}  // namespace

// Weights p e^d with |d| <= error, in numerator and denominator, move the mean of v by at most this many standard
// deviations of v: by Cauchy-Schwarz, either over all keys or relative to the top key, whose own error the others take.
double DetRow::shared_coefficient(const PairRow<double>& row, const RowFacts& facts, const RealRow<double>& error,
                                  const RealRow<double>& grown) const {
  const double least_sum = std::max((row.p * (-error).exp()).sum(), 1e-300);
  const double all = std::sqrt((row.p * grown.square()).sum()) / least_sum;
  const double top_error = error[facts.top_key];
  double relative = 0;
  for (std::int64_t j = 0; j < row.p.size(); ++j) {
    if (row.shown[j] == 0 || j == facts.top_key) continue;
    const double e = error[j] + top_error;
    const double gap = facts.lse - row.s[j];
    if (gap > 600 && e > gap - 60) return std::numeric_limits<double>::infinity();
    const double log_growth = e > 1e-3 ? e + std::log1p(-std::exp(-e)) : std::log(std::max(std::expm1(e), 1e-300));
    relative += std::exp(std::min(-gap + 2 * log_growth, 600.0));
  }
  return std::min(all, std::sqrt(relative) / std::max(row.p[facts.top_key], 1e-300));
}

RowErrors DetRow::forward(const PairRow<double>& row, const RowFacts& facts, ForwardWeights<double> weights) const {
  const NumericsProfile& n = rules_.profile;
  RowErrors errors;
  const double product = std::abs(rules_.scale) * (n.qk.det(rules_.dim) + 2 * n.input_error) * facts.q2;
  RealRow<double> error = (product * row.slope * row.k2 + score_roundings(rules_, row, facts.top)) * row.shown;
  errors.trusted = (row.p > kNegligible).select(error, 0.0).maxCoeff() <= kTrusted;
  error += static_cast<double>(1 + n.key_tiles(facts.keys)) * n.exp_error * row.shown;
  const RealRow<double> grown = growth(error);
  errors.shared = shared_coefficient(row, facts, error, grown);

  const double stored = n.p_scale * (n.p_normalised ? 1 : std::exp(facts.lse - facts.top));
  const double half_step = n.p.subnormal / (2 * stored);
  const double small = n.p.u == 0 ? 0 : std::max(n.p.min_normal, n.p.subnormal) / stored;
  errors.flushed = (row.p < small).select(row.p.min(half_step), 0.0).sum();
  errors.row_sum = static_cast<double>(n.row_sum_steps(facts.keys)) * n.u;
  const double worst = error.maxCoeff();
  errors.lse = worst < 30 ? std::log1p(std::min((row.p * grown).sum(), 1e300)) : worst;
  if (n.l_from_rounded) errors.lse += n.p.u + errors.flushed;
  errors.lse += errors.row_sum + n.u * (4 * std::abs(facts.top) + std::abs(facts.lse)) + n.log_error;
  weights.mass = row.p * row.keep.square();
  return errors;
}

void DetRow::backward(const PairRow<double>& row, const RowFacts& facts, RowErrors& errors,
                      BackwardWeights<double> weights, GroupErrors&) const {
  const NumericsProfile& n = rules_.profile;
  const std::int64_t extra = 2 * n.key_tiles(facts.keys);
  const double product = std::abs(rules_.scale) * (n.qk.det(rules_.dim) + 2 * n.input_error) * facts.q2;
  const RealRow<double> score_error =
      product * row.slope * row.k2 + score_roundings(rules_, row, facts.lse) + n.exp_error + errors.lse;
  const RealRow<double> grown = growth(score_error) * row.shown;
  // A computed P passes 1 by no more than the error of its own row's LSE.
  const RealRow<double> p_error = (row.p * grown).min((1 + errors.lse - row.p).max(0.0) + row.p * grown.min(1.0));
  const RealRow<double> dp = row.dp * row.keep;
  const RealRow<double> off = (dp - facts.delta).abs();
  const RealRow<double> weight = row.p * row.slope;
  const RealRow<double> ds = weight * off;
  const RealRow<double> dp_error = (n.bwd.det(rules_.dim_v) + 2 * n.input_error) * facts.o2 * row.keep * row.v2;
  const RealRow<double> subtraction = dp_error + n.u * (dp.abs() + std::abs(facts.delta));
  const RealRow<double> grown_off = off + dp_error + errors.d;
  RealRow<double> noise = p_error * row.slope * grown_off + weight * subtraction + 3 * n.u * ds;
  if (rules_.softcap > 0) {
    const RealRow<double> product_error = product * row.slope * row.k2;
    noise += (row.p + p_error) * grown_off * slope_error<double>(rules_, row, product_error);
  }
  RealRow<double> flushed = RealRow<double>::Zero(row.p.size());
  if (!n.wide) flushed = (row.p < 4 * kExpFlushed).select(row.p.min(kExpFlushed), 0.0) * off;
  noise += flushed;
  const RealRow<double> size = ds + noise;
  errors.overflows |= size.maxCoeff() * rules_.grad_unit >= n.p_bwd.max;
  const double half_step = n.p_bwd.subnormal / 2 / rules_.grad_unit;
  const RealRow<double> pair = noise + (size * n.p_bwd.u).max(size.min(half_step)) * row.shown + n.input_error * size;
  weights.dq = pair + n.bwd.det(facts.keys, extra) * size;
  weights.mean = weight;
  weights.dk = pair + weight * errors.d + n.bwd.det(facts.queries, extra) * size;
  const RealRow<double> dropped = row.p * row.keep;
  const RealRow<double> p_rounded = (row.p * n.p_bwd.u).max(row.p.min(n.p_bwd.subnormal / 2)) * row.keep;
  weights.dv =
      row.keep * p_error * (1 + n.p_bwd.u) + p_rounded + dropped * (n.input_error + n.bwd.det(facts.queries, extra));
  const RealRow<double> bias_noise =
      p_error * grown_off + row.p * (subtraction + errors.d) + 3 * n.u * row.p * off + flushed;
  weights.bias = bias_noise + static_cast<double>(rules_.bias_terms) * n.u * (row.p * off + bias_noise);
}

}  // namespace attest

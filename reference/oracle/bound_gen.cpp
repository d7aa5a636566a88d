// SPDX-License-Identifier: Apache-2.0
// The probabilistic bound of a row; see docs/numerics.md.
#include <cmath>

#include "reference/oracle/bound_row.h"

namespace attest {
namespace {

constexpr double kNegligible = 0x1p-60;     // probabilities below it do not decide whether a row is trusted
constexpr double kTrusted = 0.5;            // lambda times the score error of a row that first order describes
constexpr double kTrustedNegligible = 2.0;  // the same for negligible probabilities
constexpr double kSpread = 2.0;             // kappa: partial sums over their final size
constexpr double kExpFlushed = 0x1p-126;    // exp results below it may become 0

// Keeps the squares of tiny weights away from the end of the range: a bound is never below about 1e-18 of what the
// largest operands give.
template <typename Real>
constexpr Real kFloor = sizeof(Real) == 4 ? static_cast<Real>(1e-36) : static_cast<Real>(1e-290);

// e^x - 1 from above for 0 <= x <= 1/2.
template <typename Real>
RealRow<Real> growth(const RealRow<Real>& x) {
  return x * (1 + x * (Real(1.0 / 2) + x * (Real(1.0 / 6) + x * Real(1.0 / 20))));
}

}  // namespace

namespace {

// The score before the bias.
template <typename Real>
RealRow<Real> capped_score(const RowRules& rules, const PairRow<Real>& row) {
  const RealRow<Real> score = row.x * Real(rules.scale);
  if (rules.softcap == 0) return score;
  return score.sign() * Real(rules.softcap) * (1 - row.slope).max(Real(0)).sqrt();
}

}  // namespace

template <typename Real>
RealRow<Real> slope_error(const RowRules& rules, const PairRow<Real>& row, const RealRow<Real>& product_error) {
  // 1 - t^2 with t = tanh: an absolute error, whatever is left of 1 - t^2; and t itself moves with its argument.
  const Real u = static_cast<Real>(rules.profile.u);
  const RealRow<Real> square = (1 - row.slope).max(Real(0));
  const RealRow<Real> argument =
      product_error + 2 * u * Real(std::abs(rules.scale)) * row.x.abs() * row.slope;
  return square * Real(2 * rules.profile.tanh_error) + 3 * u + square.sqrt() * argument * Real(2 / rules.softcap);
}

template <typename Real>
RealRow<Real> score_roundings(const RowRules& rules, const PairRow<Real>& row, double centre) {
  // The scale (1), its product with log2 e, the fused or unfused subtraction (4), and the maximum times log2 e (3).
  const Real u = static_cast<Real>(rules.profile.u);
  RealRow<Real> error = u * (row.x.abs() * Real(std::abs(rules.scale)) + 4 * (row.s - Real(centre)).abs()) +
                        3 * u * Real(std::abs(centre));
  if (rules.softcap == 0 && rules.bias_roundings == 0) return error;
  const RealRow<Real> capped = capped_score(rules, row);
  if (rules.softcap > 0) error += Real(rules.profile.tanh_error + 4 * rules.profile.u) * capped.abs();
  if (rules.bias_roundings > 0) error += Real(rules.bias_roundings) * u * ((row.s - capped).abs() + row.s.abs());
  return error * row.shown;
}

template RealRow<float> score_roundings(const RowRules&, const PairRow<float>&, double);
template RealRow<double> score_roundings(const RowRules&, const PairRow<double>&, double);
template RealRow<double> slope_error(const RowRules&, const PairRow<double>&, const RealRow<double>&);

template <typename Real>
typename GenRow<Real>::ScoreError GenRow<Real>::product_error(const PairRow<Real>& row, const RowFacts& facts) const {
  const Accumulation& qk = rules_.profile.qk;
  const Real tau = static_cast<Real>(std::abs(rules_.scale));
  const RealRow<Real> score = tau * row.x.abs();
  const RealRow<Real> walk = tau * Real(facts.q4) * row.k4 + score;  // size of the partial sums
  const double truncated = qk.truncates ? qk.det(rules_.dim) : 0;
  return {Real(qk.rand(rules_.dim) + 2 * rules_.profile.input_error) * walk * row.slope,
          (Real(qk.bias(rules_.dim)) * walk + Real(truncated) * score) * row.slope};
}

template <typename Real>
double GenRow<Real>::lse_bound(const PairRow<Real>& row, const RowFacts& facts, const RowErrors& errors,
                               const RealRow<Real>& random, const RealRow<Real>& one_sided) const {
  const NumericsProfile& n = rules_.profile;
  const double exp2 = n.exp_error * n.exp_error;
  double bound = rules_.lambda * std::sqrt(static_cast<double>((row.p * random).square().sum()) +
                                           static_cast<double>(row.p.square().sum()) * exp2 +
                                           static_cast<double>(facts.rises) * exp2) +
                 static_cast<double>((row.p * one_sided).sum()) + n.exp_error;
  if (n.l_from_rounded) bound += rules_.lambda * std::sqrt(errors.rounded) + errors.flushed;
  return bound + errors.row_sum + n.u * (4 * std::abs(facts.top) + std::abs(facts.lse)) + n.log_error;
}

template <typename Real>
RowErrors GenRow<Real>::forward(const PairRow<Real>& row, const RowFacts& facts, ForwardWeights<Real> weights) const {
  const NumericsProfile& n = rules_.profile;
  const double lambda = rules_.lambda;
  RowErrors errors;
  const ScoreError product = product_error(row, facts);
  const RealRow<Real> one_sided = product.product_bias + score_roundings(rules_, row, facts.top);
  const Real exp2 = static_cast<Real>(static_cast<double>(1 + facts.rises) * n.exp_error * n.exp_error);
  const RealRow<Real> error = (product.random.square() + one_sided.square() + exp2).sqrt() * row.shown;
  errors.trusted =
      lambda * static_cast<double>((row.p > Real(kNegligible)).select(error, Real(0)).maxCoeff()) <= kTrusted &&
      lambda * static_cast<double>(error.maxCoeff()) <= kTrustedNegligible;

  // What numerator and denominator share, either as it is or relative to the top key.
  const RealRow<Real> eta = growth<Real>(error * Real(lambda)) / Real(lambda);
  const double eta_spread = static_cast<double>((row.p * eta.square()).maxCoeff());
  const Real top_error = error[facts.top_key];
  RealRow<Real> relative =
      row.p * growth<Real>((error.square() + top_error * top_error).sqrt() * Real(lambda)).square();
  relative[facts.top_key] = 0;
  const double top_p = static_cast<double>(row.p[facts.top_key]);
  const double top_spread = static_cast<double>(relative.sum()) / (lambda * lambda * top_p * top_p);
  errors.shared = std::min(eta_spread, top_spread);

  // Rounding of P, and what of it falls below the smallest numbers of its type.
  const double stored = n.p_scale * (n.p_normalised ? 1 : std::exp(facts.lse - facts.top));  // stored P = p * stored
  const Real half_step = static_cast<Real>(n.p.subnormal / (2 * stored));
  const RealRow<Real> rounded = (row.p * Real(n.p.u)).max(row.p.min(half_step));
  errors.flushed = static_cast<double>((row.p < 2 * half_step).select(row.p.min(half_step), Real(0)).sum());
  errors.rounded = static_cast<double>(rounded.square().sum());
  errors.row_sum = lambda * std::sqrt(static_cast<double>(n.row_sum_steps(facts.keys))) * n.u;
  errors.lse = lse_bound(row, facts, errors, product.random, one_sided);

  const Real converted = static_cast<Real>(n.input_error * n.input_error);
  weights.mass = row.p * row.keep.square();
  // Where P is not rounded R2 is not needed; the size of the partial sums of P V still is.
  const Real unrounded = n.p.u == 0 ? Real(1) : converted;
  weights.rounding = (rounded.square() + unrounded * row.p.square()) * row.keep.square() + kFloor<Real> * row.shown;
  if (exact_shared()) {
    weights.eta2 = (row.p * row.keep * eta).square();
    weights.eta1 = (row.p * eta).square() * row.keep;
    errors.shared_sum = static_cast<double>((row.p * eta).square().sum());
  }
  if (!rules_.backward) return errors;
  const RealRow<Real> dp = row.dp * row.keep;
  const RealRow<Real> off = dp - Real(facts.d);
  double d_rounded = static_cast<double>((rounded * dp).square().sum());
  if (n.l_from_rounded) {
    d_rounded = std::pow(std::sqrt(d_rounded) + std::abs(facts.d) * std::sqrt(errors.rounded), 2);
  }
  errors.d_variance = d_rounded + std::min(static_cast<double>((row.p * eta * off).square().sum()),
                                           top_spread * static_cast<double>((row.p * off.square()).sum()));
  return errors;
}

template <typename Real>
double GenRow<Real>::accumulation(const RowFacts& facts, double o, double r2, double p2v2) const {
  const NumericsProfile& n = rules_.profile;
  const double size = n.p.u == 0 ? std::sqrt(p2v2) : std::sqrt(r2) / n.p.u;
  return n.pv.gen(facts.keys, rules_.lambda, kSpread * size, std::abs(o), 2 * n.key_tiles(facts.keys));
}

template <typename Real>
void GenRow<Real>::backward(const PairRow<Real>& row, const RowFacts& facts, RowErrors& errors,
                            BackwardWeights<Real> weights, GroupErrors& group) const {
  const NumericsProfile& n = rules_.profile;
  const double lambda = rules_.lambda;
  const Real u = static_cast<Real>(n.u);
  const double lse_share = errors.lse / lambda;
  const ScoreError product = product_error(row, facts);
  const RealRow<Real> one_sided = product.product_bias + score_roundings(rules_, row, facts.lse);
  const RealRow<Real> dropped = row.p * row.keep;
  group.common =
      std::max(group.common, errors.lse + n.exp_error +
                                 static_cast<double>((dropped > Real(0x1p-30)).select(one_sided, Real(0)).maxCoeff()));
  RealRow<Real> eta2 =
      product.random.square() + one_sided.square() + Real(n.exp_error * n.exp_error + lse_share * lse_share);
  const RealRow<Real> dp = row.dp * row.keep;
  const RealRow<Real> off = dp - Real(facts.delta);
  const RealRow<Real> weight = row.p * row.slope;
  const RealRow<Real> ds = weight * off;
  const double truncated = n.bwd.truncates ? n.bwd.det(rules_.dim_v) : 0;
  const RealRow<Real> dp_error = Real(n.bwd.rand(rules_.dim_v) + n.bwd.bias(rules_.dim_v) + 2 * n.input_error) *
                                     row.keep * (Real(facts.o4) * row.v4 + row.dp.abs()) +
                                 Real(truncated) * dp.abs();
  const RealRow<Real> subtraction = dp_error.square() + u * u * (dp.square() + Real(facts.delta * facts.delta));
  RealRow<Real> noise2 = weight.square() * subtraction + ds.square() * (eta2 + 4 * u * u);
  if (!n.wide) {
    noise2 += ((row.p < Real(4 * kExpFlushed)).select(row.p.min(Real(kExpFlushed)), Real(0)) * off).square();
  }
  if (rules_.softcap > 0) {
    noise2 += (row.p * off * slope_error<Real>(rules_, row, product.random + product.product_bias)).square();
  }
  const RealRow<Real> size = ds.abs() + noise2.sqrt();
  errors.overflows |= static_cast<double>(size.maxCoeff()) * rules_.grad_unit >= n.p_bwd.max;
  const Real half_step = static_cast<Real>(n.p_bwd.subnormal / 2 / rules_.grad_unit);
  const RealRow<Real> rounded = (size * Real(n.p_bwd.u)).max(size.min(half_step)) * row.shown;
  const Real converted = static_cast<Real>(n.input_error * n.input_error);
  const RealRow<Real> variance = noise2 + rounded.square() + converted * ds.square() + kFloor<Real> * row.shown;
  weights.dq = variance;
  weights.mean = weight;
  weights.dk = variance + (weight * Real(errors.d_deviation)).square() + (ds * Real(lse_share)).square();
  // P may be rounded before or after it is divided by 1 - p.
  const RealRow<Real> p_rounded = (row.p * Real(n.p_bwd.u)).max(row.p.min(Real(n.p_bwd.subnormal / 2))) * row.keep;
  weights.dv = p_rounded.square() + dropped.square() * (eta2 + converted) + kFloor<Real> * row.shown;
  weights.bias = row.p.square() * subtraction + (row.p * off).square() * (eta2 + 4 * u * u) +
                 kFloor<Real> * row.shown;
  weights.bias_common = row.p * Real(errors.d) + (row.p * off).abs() * Real(errors.lse);
  const double least = n.p_bwd.u * n.p_bwd.u + n.exp_error * n.exp_error + lse_share * lse_share + n.u * n.u;
  group.least_weight = std::min(group.least_weight, least);
}

template class GenRow<float>;
template class GenRow<double>;

}  // namespace attest

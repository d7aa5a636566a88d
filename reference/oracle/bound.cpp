// SPDX-License-Identifier: Apache-2.0
// error_bounds: which rule judges which row, and where no bound can be stated.
#include "reference/oracle/bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/oracle/bound_sweep.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kDeviations = 4;  // lambda
constexpr double kCapturedDeviations = 6;
constexpr double kHuge = 1e70;        // squares of such numbers and their products stay finite
constexpr double kFloatScores = 1e4;  // largest score that float computes to a per cent of P

double largest(const std::vector<double>& data) {
  double most = 0;
  for (const double x : data) {
    if (std::isfinite(x)) most = std::max(most, std::abs(x));
  }
  return most;
}

bool has_huge(const Inputs& inputs) {
  return std::max({largest(inputs.q.data), largest(inputs.k.data), largest(inputs.v.data), largest(inputs.d_o.data),
                   largest(inputs.bias.data), largest(inputs.d_lse)}) >= kHuge;
}

double mean(const std::vector<double>& data) {
  double sum = 0;
  for (const double x : data) sum += x;
  return data.empty() ? 0 : sum / static_cast<double>(data.size());
}

double mean_square(const std::vector<double>& data, double around) {
  double sum = 0;
  for (const double x : data) sum += (x - around) * (x - around);
  return data.empty() ? 0 : sum / static_cast<double>(data.size());
}

// How far the scores of a row spread, about a standard deviation from below.
double score_spread(const Problem& problem, const Inputs& inputs) {
  const double mean_k = mean(inputs.k.data), scale = std::abs(problem.effective_scale());
  const double dim = static_cast<double>(problem.dim);
  double spread = scale * std::sqrt(dim * mean_square(inputs.q.data, 0) * mean_square(inputs.k.data, mean_k));
  if (problem.softcap > 0) {
    // Scores far beyond the cap all come to +-cap.
    const double level = std::max(spread, scale * dim * std::abs(mean(inputs.q.data) * mean_k));
    const double secant = 1 / std::cosh(level / problem.softcap);
    spread = std::min(spread, problem.softcap) * secant * secant;
  }
  // Of n keys in D dimensions the one nearest to their mean is about n^(-1/D) of the usual distance away from it. Its
  // scores differ by as much less between rows, and so do those of the query nearest to 0 between keys.
  const double rows = static_cast<double>(std::max({problem.max_q() * problem.group(), problem.max_k(), std::int64_t{1}}));
  return spread * std::pow(rows, -1 / dim);
}

// Where the scores of a row differ by less than the spacing of P's type, its roundings are no random walk: many P are
// equal, and so are their errors.
bool scores_are_generic(double spread, const NumericsProfile& profile) {
  return spread > 2 * std::max({profile.p.u, profile.p_bwd.u, profile.u});
}

// Mean of P's rounding errors, relative to P: rounding to nearest is unbiased to first order; at each power of two, where the
// spacing doubles, (3/4) (2 u)^2 / 12 times the density of ln P remains. Powers of two lie ln 2 apart, hence the sum over them
// of a density with one peak of 0.4 / spread is at most that peak and 1 / ln 2.
double mean_rounding(double spread, double u) { return u * u / 4 * (0.4 / spread + 1.45); }

// Float's error in a score is about 2^-24 sqrt(D) times its terms; where P or dS is kept in float32 or better, the
// bound itself needs squares that leave float's range.
bool float_suffices(const Problem& problem, const Inputs& inputs, const NumericsProfile& profile) {
  if (std::min(profile.p.u, profile.p_bwd.u) <= 2 * profile.u) return false;
  const double terms = largest(inputs.q.data) * largest(inputs.k.data) * std::abs(problem.effective_scale()) *
                       std::sqrt(static_cast<double>(problem.dim));
  return terms + largest(inputs.bias.data) < kFloatScores;
}

void drop_non_finite(std::vector<double>& data) {
  for (double& x : data) {
    if (!std::isfinite(x)) x = 0;
  }
}

// Rows with a NaN are made rows that see nothing, so that they spoil no sum of the others.
Exact finite_part(const Exact& exact) {
  Exact finite = exact;
  for (Values* values : {&finite.o, &finite.dq, &finite.dk, &finite.dv}) drop_non_finite(values->data);
  drop_non_finite(finite.d_bias.data);
  for (double& lse : finite.lse) {
    if (!std::isfinite(lse)) lse = -kInfinity;
  }
  return finite;
}

Inputs finite_part(const Inputs& inputs) {
  Inputs finite = inputs;
  for (Values* values : {&finite.q, &finite.k, &finite.v, &finite.d_o}) drop_non_finite(values->data);
  drop_non_finite(finite.d_lse);
  for (double& x : finite.bias.data) {
    if (std::isnan(x) || x == kInfinity) x = 0;
  }
  return finite;
}

bool all_set(const std::vector<std::uint8_t>& flags) {
  return std::all_of(flags.begin(), flags.end(), [](std::uint8_t flag) { return flag != 0; });
}

// Elements whose row is not trusted take the bound of `other`, or infinity where that is not trusted either.
void replace(Values& values, const std::vector<std::uint8_t>& trust, const Values* other,
             const std::vector<std::uint8_t>* other_trust) {
  for (std::size_t n = 0; n < values.data.size(); ++n) {
    const std::size_t row = n / static_cast<std::size_t>(values.width);
    if (trust[row] != 0) continue;
    values.data[n] = other != nullptr && (*other_trust)[row] != 0 ? other->data[n] : kInfinity;
  }
}

void resolve(SweptBounds& swept, const SweptBounds* other) {
  Bounds& bounds = swept.bounds;
  const BoundTrust& trust = swept.trust;
  const BoundTrust* other_trust = other != nullptr ? &other->trust : nullptr;
  const auto pick = [&](Values& values, const std::vector<std::uint8_t>& flags, Values Bounds::*tensor,
                        std::vector<std::uint8_t> BoundTrust::*kind) {
    replace(values, flags, other != nullptr ? &(other->bounds.*tensor) : nullptr,
            other != nullptr ? &(other_trust->*kind) : nullptr);
  };
  pick(bounds.o, trust.rows, &Bounds::o, &BoundTrust::rows);
  pick(bounds.dq, trust.gradients, &Bounds::dq, &BoundTrust::gradients);
  pick(bounds.dk, trust.keys, &Bounds::dk, &BoundTrust::keys);
  pick(bounds.dv, trust.keys, &Bounds::dv, &BoundTrust::keys);
  for (std::size_t n = 0; n < bounds.lse.size(); ++n) {
    if (trust.rows[n] != 0) continue;
    bounds.lse[n] = other != nullptr && other_trust->rows[n] != 0 ? other->bounds.lse[n] : kInfinity;
  }
  for (std::size_t n = 0; n < bounds.d_bias.data.size(); ++n) {
    double& bound = bounds.d_bias.data[n];
    if (!std::isfinite(bound)) bound = other != nullptr ? other->bounds.d_bias.data[n] : kInfinity;
  }
}

// Infinity where the exact value is NaN or infinite (an empty row's LSE apart) or the bound is no number.
std::int64_t mark_unspecified(const std::vector<double>& exact, std::vector<double>& bounds, bool is_lse) {
  std::int64_t count = 0;
  for (std::size_t n = 0; n < bounds.size(); ++n) {
    const bool empty_row = is_lse && exact[n] == -kInfinity;
    if ((!std::isfinite(exact[n]) && !empty_row) || std::isnan(bounds[n])) bounds[n] = kInfinity;
    count += bounds[n] == kInfinity;
  }
  return count;
}

void count_unspecified(const Exact& exact, Bounds& bounds) {
  bounds.unspecified =
      mark_unspecified(exact.o.data, bounds.o.data, false) + mark_unspecified(exact.lse, bounds.lse, true) +
      mark_unspecified(exact.dq.data, bounds.dq.data, false) + mark_unspecified(exact.dk.data, bounds.dk.data, false) +
      mark_unspecified(exact.dv.data, bounds.dv.data, false) +
      mark_unspecified(exact.d_bias.data, bounds.d_bias.data, false);
}

SweptBounds swept_gen(const Problem& problem, const Inputs& inputs, const Scores& scores, const Exact& exact,
                      const NumericsProfile& profile, BoundMode mode, BoundArithmetic arithmetic, double spread) {
  const bool captured = mode == BoundMode::captured;
  const CommonErrors common = {captured ? profile.p.u : 0, mean_rounding(spread, profile.p.u)};
  const double lambda = captured ? kCapturedDeviations : kDeviations;
  if (arithmetic == BoundArithmetic::fast && float_suffices(problem, inputs, profile)) {
    return sweep_bounds<GenRow<float>>(problem, inputs, scores, exact, profile, lambda, common);
  }
  return sweep_bounds<GenRow<double>>(problem, inputs, scores, exact, profile, lambda, common);
}

SweptBounds swept_bounds(const Problem& problem, const Inputs& inputs, const Exact& exact,
                         const NumericsProfile& profile, BoundMode mode, BoundArithmetic arithmetic) {
  const Scores scores(problem, inputs);
  const double spread = score_spread(problem, inputs);
  if (mode == BoundMode::det || !scores_are_generic(spread, profile)) {
    SweptBounds det = sweep_bounds<DetRow>(problem, inputs, scores, exact, profile, 1, {});
    resolve(det, nullptr);
    return det;
  }
  const double deviations = mode == BoundMode::captured ? kCapturedDeviations : kDeviations;
  SweptBounds gen = swept_gen(problem, inputs, scores, exact, profile, mode, arithmetic, spread);
  gen.bounds.deviations = deviations;
  if (all_set(gen.trust.rows) && all_set(gen.trust.gradients) && all_set(gen.trust.keys)) return gen;
  SweptBounds det = sweep_bounds<DetRow>(problem, inputs, scores, exact, profile, 1, {});
  resolve(gen, &det);
  return gen;
}

// The oracle's double arithmetic errs as much as a float64 kernel may: its own worst-case bound is added.
void add_oracle_error(const Problem& problem, const Inputs& inputs, const Exact& exact, Bounds& bounds) {
  const NumericsProfile own = make_profile(numerics_preset("emulated-f64"), problem);
  SweptBounds oracle = swept_bounds(problem, inputs, exact, own, BoundMode::det, BoundArithmetic::in_double);
  const auto add = [](std::vector<double>& to, const std::vector<double>& from) {
    for (std::size_t n = 0; n < to.size(); ++n) to[n] += from[n];
  };
  add(bounds.o.data, oracle.bounds.o.data);
  add(bounds.lse, oracle.bounds.lse);
  add(bounds.dq.data, oracle.bounds.dq.data);
  add(bounds.dk.data, oracle.bounds.dk.data);
  add(bounds.dv.data, oracle.bounds.dv.data);
  add(bounds.d_bias.data, oracle.bounds.d_bias.data);
}

}  // namespace

Bounds error_bounds(const Problem& problem, const Inputs& inputs, const Exact& exact, const NumericsProfile& profile,
                    BoundMode mode, BoundArithmetic arithmetic) {
  const Exact finite_exact = finite_part(exact);
  const Inputs finite_inputs = finite_part(inputs);
  Bounds bounds = swept_bounds(problem, finite_inputs, finite_exact, profile, mode, arithmetic).bounds;
  if (profile.wide) add_oracle_error(problem, finite_inputs, finite_exact, bounds);
  if (has_huge(inputs)) {
    for (Values* values : {&bounds.o, &bounds.dq, &bounds.dk, &bounds.dv}) {
      std::fill(values->data.begin(), values->data.end(), kInfinity);
    }
    std::fill(bounds.lse.begin(), bounds.lse.end(), kInfinity);
    std::fill(bounds.d_bias.data.begin(), bounds.d_bias.data.end(), kInfinity);
  }
  count_unspecified(exact, bounds);
  return bounds;
}

ExactWithBounds exact_attention_with_bounds(const Problem& problem, const Inputs& inputs,
                                            const NumericsProfile& profile, BoundMode mode) {
  ExactWithBounds result;
  result.exact = exact_attention(problem, inputs);
  result.bounds = error_bounds(problem, inputs, result.exact, profile, mode);
  return result;
}

}  // namespace attest

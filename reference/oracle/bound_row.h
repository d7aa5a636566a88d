// SPDX-License-Identifier: Apache-2.0
// The bound of one row of queries, in two steps: `forward` finds how far the row's weights may be off and what that does
// to LSE; `backward`, once the error of O is known, what each pair of a query and a key adds to the bounds of the
// gradients. Symbols are those of docs/numerics.md. Real is float where a bound accurate to a per cent needs no more.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <vector>

#include "reference/oracle/numerics_profile.h"

namespace attest {

template <typename Real>
using RealRow = Eigen::Array<Real, 1, Eigen::Dynamic>;
template <typename Real>
using RealRowMap = Eigen::Map<RealRow<Real>>;
template <typename Real>
using ConstRealRowMap = Eigen::Map<const RealRow<Real>>;

/// What all rows of a problem share. "In units": divided by a power of two that keeps squares inside float's range.
struct RowRules {
  NumericsProfile profile;
  double lambda;          // standard deviations of gen
  double common_p;        // part of |o| by which roundings of P may be common to a row
  double scale;           // of <q, k> in units
  double softcap;         // 0: off
  double grad_unit;       // unit of dP, delta and dS
  double bias_roundings;  // of bias and ALiBi together; 0 without
  bool backward;
  bool has_d_lse;
  std::int64_t dim;
  std::int64_t dim_v;
  std::int64_t bias_terms;  // pairs that one element of d_bias sums, at most
  std::vector<double> common_d;  // [B, Hq] error of D that the rows of a head may share, in units; empty: none
};

/// One row's pairs with the keys that its block may see. Where a pair is hidden, shown = p = 0 and s is the top score.
template <typename Real>
struct PairRow {
  RealRowMap<Real> x;                    // <q, k> in units
  RealRowMap<Real> s;                    // score
  RealRowMap<Real> p;                    // probability, before dropout
  RealRowMap<Real> shown;                // 1 or 0
  RealRowMap<Real> slope;                // derivative of the softcap, 1 without
  RealRowMap<Real> keep;                 // Z / (1 - p), 1 without dropout
  RealRowMap<Real> dp;                   // <do, v> in units
  ConstRealRowMap<Real> k2, k4, v2, v4;  // 2-norms and 4-norms of the keys and values, in units
};

/// Scalars of a row that are known before its bound.
struct RowFacts {
  double lse;
  double top;            // largest score
  std::int64_t top_key;  // where in the PairRow
  std::int64_t rises;    // tiles that raise the running maximum, in the worse direction
  std::int64_t keys;     // Sk
  std::int64_t queries;  // rows that add to dk and dv of the group
  double q2, q4;         // norms of q in units
  double o2, o4;         // norms of do in units
  double d;              // <do, o> in units
  double delta;          // d - dlse
};

/// What `forward` finds out about a row.
struct RowErrors {
  bool trusted = true;
  double lse = 0;          // bound of LSE
  double flushed = 0;      // F, probability that may be flushed to zero
  double row_sum = 0;      // gamma_l
  double shared = 0;       // gen: H / Var; det: the shared error / sqrt(Var)
  double rounded = 0;      // gen: sum (p pibar)^2 where l is summed from rounded P
  double d_variance = 0;   // gen: RD + Hd
  double shared_sum = 0;   // gen, exact form of H: sum (p eta)^2
  double d = 0;            // bound of D in units; the sweep's, between the steps
  double d_deviation = 0;  // gen: its deviation, where rows add up
  bool overflows = false;  // dS may pass the largest number of its type
};

/// What dk and dv of a key/value head need to know about all rows.
struct GroupErrors {
  double least_weight = 1e300;  // w: sigma^2 >= w dS^2
  double common = 0;            // errors that may be common to all pairs
};

/// Weights of the forward's products.
template <typename Real>
struct ForwardWeights {
  RealRowMap<Real> mass;      // times v^2: M2
  RealRowMap<Real> rounding;  // gen, times v^2: R2
  RealRowMap<Real> eta2;      // gen, exact form of H, times v^2
  RealRowMap<Real> eta1;      // the same, times v
};

/// Weights of the backward's products.
template <typename Real>
struct BackwardWeights {
  RealRowMap<Real> dq;           // times k^2 (gen) or |k| (det)
  RealRowMap<Real> mean;         // p sd, times k
  RealRowMap<Real> dk;           // times q^2 or |q|
  RealRowMap<Real> dv;           // times do^2 or |do|
  RealRowMap<Real> bias;         // gen: variance of d_bias; det: its bound
  RealRowMap<Real> bias_common;  // gen: the part of d_bias that a row has in common
};

/// Roundings of a score outside its product; `centre` is what the kernel subtracts before exp.
template <typename Real>
RealRow<Real> score_roundings(const RowRules& rules, const PairRow<Real>& row, double centre);

/// Error of the softcap's derivative, given that of the product <q, k> times the derivative.
template <typename Real>
RealRow<Real> slope_error(const RowRules& rules, const PairRow<Real>& row, const RealRow<Real>& product_error);

/// Random families: errors add like a random walk.
template <typename Element>
class GenRow {
 public:
  using Real = Element;
  static constexpr bool kSquares = true;

  explicit GenRow(const RowRules& rules) : rules_(rules) {}
  bool exact_shared() const { return rules_.profile.p.u <= 2 * rules_.profile.u; }
  RowErrors forward(const PairRow<Real>& row, const RowFacts& facts, ForwardWeights<Real> weights) const;
  /// Error of one element of the product P V and its accumulation; `r2` and `h` are R2 and H there.
  double accumulation(const RowFacts& facts, double o, double r2, double p2v2) const;
  void backward(const PairRow<Real>& row, const RowFacts& facts, RowErrors& errors, BackwardWeights<Real> weights,
                GroupErrors& group) const;

 private:
  struct ScoreError {
    RealRow<Real> random;        // dr
    RealRow<Real> product_bias;  // db
  };
  ScoreError product_error(const PairRow<Real>& row, const RowFacts& facts) const;
  double lse_bound(const PairRow<Real>& row, const RowFacts& facts, const RowErrors& errors,
                   const RealRow<Real>& random, const RealRow<Real>& one_sided) const;

  RowRules rules_;
};

/// Any input: worst cases.
class DetRow {
 public:
  using Real = double;
  static constexpr bool kSquares = false;

  explicit DetRow(const RowRules& rules) : rules_(rules) {}
  RowErrors forward(const PairRow<Real>& row, const RowFacts& facts, ForwardWeights<Real> weights) const;
  void backward(const PairRow<Real>& row, const RowFacts& facts, RowErrors& errors, BackwardWeights<Real> weights,
                GroupErrors& group) const;

 private:
  double shared_coefficient(const PairRow<Real>& row, const RowFacts& facts, const RealRow<Real>& error,
                            const RealRow<Real>& growth) const;
  RowRules rules_;
};

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// From products <q_i, k_j> to scores: scale, softcap, bias, ALiBi, and -inf where the mask hides. One row at a
// time, so that every sweep of the oracle computes the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/oracle/visibility.h"
#include "reference/problem/inputs.h"
#include "reference/problem/problem.h"

namespace attest {

class Scores {
 public:
  /// Both must outlive this.
  Scores(const Problem& problem, const Inputs& inputs);

  /// Turns row[n] = <q_i, k_j>, j = first + n, into scores in place. `slope`, unless empty, gets
  /// 1 - tanh^2, the derivative of the softcap.
  void finish(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t first, std::span<double> row,
              std::span<double> slope = {}) const;
  /// The same for products <q, k> / unit in float or double, `scale` times unit given; used by the error bounds.
  template <typename Real>
  void finish_scaled(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t first, double scale,
                     std::span<Real> row, std::span<Real> slope) const;

  /// Keys that some query of [i, i + count) may see, by causal, window and length.
  KeyRange keys_of(std::int64_t b, std::int64_t i, std::int64_t count) const;

  /// Z / (1 - p) of the row, in place of `factor`; only where the problem has dropout.
  void dropout_factors(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t first,
                       std::span<double> factor) const;

  bool has_softcap() const { return softcap_ > 0; }
  bool has_dropout() const { return problem_.dropout.has_value(); }
  double scale() const { return scale_; }

 private:
  template <typename Real>
  void add_bias(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t first, std::span<Real> row) const;
  template <typename Real>
  void hide(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t first, std::span<Real> row) const;

  const Problem& problem_;
  const Inputs& inputs_;
  double scale_;
  double softcap_;
  double keep_factor_;  // 1 / (1 - p)
};

}  // namespace attest

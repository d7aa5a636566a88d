// SPDX-License-Identifier: Apache-2.0
// Scores of one row of queries; see scores.h.
#include "reference/oracle/scores.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attest {
namespace {

template <typename Real>
constexpr Real kHidden = -std::numeric_limits<Real>::infinity();

}  // namespace

Scores::Scores(const Problem& problem, const Inputs& inputs)
    : problem_(problem), inputs_(inputs), scale_(problem.effective_scale()), softcap_(problem.effective_softcap()),
      keep_factor_(1 / (1 - problem.effective_dropout())) {}

void Scores::finish(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t first, std::span<double> row,
                    std::span<double> slope) const {
  finish_scaled<double>(b, h, i, first, scale_, row, slope);
}

template <typename Real>
void Scores::finish_scaled(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t first, double scale,
                           std::span<Real> row, std::span<Real> slope) const {
  const std::size_t count = row.size();
  const Real factor = static_cast<Real>(scale);
  for (std::size_t n = 0; n < count; ++n) row[n] *= factor;
  if (softcap_ > 0) {
    const Real cap = static_cast<Real>(softcap_);
    for (std::size_t n = 0; n < count; ++n) {
      const Real ratio = row[n] / cap;
      row[n] = cap * std::tanh(ratio);
      // 1 - tanh^2 as 1 / cosh^2: 1 - tanh would lose all digits where the cap is hard.
      const Real secant = 1 / std::cosh(ratio);
      if (!slope.empty()) slope[n] = secant * secant;
    }
  }
  if (!inputs_.bias.empty() || problem_.alibi) add_bias(b, h, i, first, row);
  hide(b, h, i, first, row);
}

template void Scores::finish_scaled(std::int64_t, std::int64_t, std::int64_t, std::int64_t, double, std::span<float>,
                                    std::span<float>) const;
template void Scores::finish_scaled(std::int64_t, std::int64_t, std::int64_t, std::int64_t, double, std::span<double>,
                                    std::span<double>) const;

template <typename Real>
void Scores::add_bias(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t first, std::span<Real> row) const {
  const std::int64_t count = static_cast<std::int64_t>(row.size());
  if (!inputs_.bias.empty()) {
    for (std::int64_t n = 0; n < count; ++n) row[n] += static_cast<Real>(inputs_.bias.at(b, h, i, first + n));
  }
  if (problem_.alibi) {
    const Real slope = static_cast<Real>(inputs_.alibi_slopes[h]);
    const std::int64_t diagonal = i + problem_.seq_k[b] - problem_.seq_q[b];
    for (std::int64_t n = 0; n < count; ++n) row[n] -= slope * static_cast<Real>(std::abs(diagonal - first - n));
  }
}

template <typename Real>
void Scores::hide(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t first, std::span<Real> row) const {
  const std::int64_t count = static_cast<std::int64_t>(row.size());
  const KeyRange range = key_range(problem_, b, i);
  const std::int64_t shown_from = std::clamp<std::int64_t>(range.first - first, 0, count);
  const std::int64_t shown_to = std::clamp<std::int64_t>(range.last - first, shown_from, count);
  std::fill(row.begin(), row.begin() + shown_from, kHidden<Real>);
  std::fill(row.begin() + shown_to, row.end(), kHidden<Real>);
  if (problem_.mask) {
    for (std::int64_t n = shown_from; n < shown_to; ++n) {
      if (inputs_.mask.at(b, h, i, first + n) == 0) row[n] = kHidden<Real>;
    }
  }
  if (problem_.block) {
    const std::int64_t tile_row = i / problem_.block->rows;
    for (std::int64_t n = shown_from; n < shown_to; ++n) {
      if (inputs_.block_mask.at(b, h, tile_row, (first + n) / problem_.block->cols) == 0) row[n] = kHidden<Real>;
    }
  }
}

KeyRange Scores::keys_of(std::int64_t b, std::int64_t i, std::int64_t count) const {
  // Both ends rise with i, so the first and the last query decide.
  const std::int64_t first = key_range(problem_, b, i).first;
  const std::int64_t last = key_range(problem_, b, i + count - 1).last;
  const std::int64_t clamped = std::clamp<std::int64_t>(first, 0, problem_.seq_k[b]);
  return {clamped, std::clamp<std::int64_t>(last, clamped, problem_.seq_k[b])};
}

void Scores::dropout_factors(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t first,
                             std::span<double> factor) const {
  kept_row(problem_, b, h, i, first, factor);
  for (double& f : factor) f *= keep_factor_;
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// From the scores of a reading to its weights, LSE and O.
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/diagnose/evaluate.h"

namespace attest::diagnose {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kLog2E = 1.4426950408889634074;

double log_sum_exp(const std::vector<double>& scores) {
  double top = kHidden;
  for (const double s : scores) top = std::isnan(s) ? s : std::max(top, s);
  if (top == kHidden) return kHidden;
  double sum = 0;
  for (const double s : scores) sum += std::exp(s - top);
  return top + std::log(sum);
}

}  // namespace

/// Factors of the accumulator, by tile: what a missed rescaling leaves in them.
std::vector<double> Evaluator::tile_weights(const Reading& r, const SoftRow& row, double top) const {
  const std::size_t n = row.score.size();
  std::vector<double> factor(n, 1);
  if (r.tile_fault != TileFault::not_rescaled && r.tile_fault != TileFault::never_rescaled) return factor;
  double running = kHidden;
  for (std::size_t first = 0; first < n; first += static_cast<std::size_t>(r.tile)) {
    const std::size_t end = std::min(n, first + static_cast<std::size_t>(r.tile));
    const double before = running;
    for (std::size_t j = first; j < end; ++j) running = std::max(running, row.score[j]);
    if (r.tile_fault == TileFault::never_rescaled) {
      for (std::size_t j = first; j < end; ++j) factor[j] = running == kHidden ? 1 : std::exp(top - running);
    } else if (static_cast<std::int64_t>(first) / r.tile == r.at && before != kHidden) {
      for (std::size_t j = 0; j < first; ++j) factor[j] = std::exp(running - before);
    }
  }
  return factor;
}

double Evaluator::reported_lse(const Reading& r, const SoftRow& row, double top, double sum) const {
  const double natural = top + std::log(sum);
  const double scale = r.problem.effective_scale();
  switch (r.lse) {
    case LseKind::natural: break;
    case LseKind::base2: return natural * kLog2E;
    case LseKind::without_max: return std::log(sum);
    case LseKind::max_unscaled: return top / scale + std::log(sum);
    case LseKind::after_dropout: {
      double kept = 0;
      for (std::size_t j = 0; j < row.p.size(); ++j) kept += row.p[j] * row.keep[j];
      return natural + std::log(kept);
    }
    case LseKind::unscaled: {
      std::vector<double> unscaled = row.score;
      for (double& s : unscaled) s /= scale;
      return log_sum_exp(unscaled);
    }
    case LseKind::unmasked: break;  // made before the mask, by soft_row
  }
  return natural;
}

void Evaluator::softmax(const Reading& r, const Keys& keys, SoftRow& row) const {
  const auto n = static_cast<std::int64_t>(row.score.size());
  const std::int64_t width = keys.v.cols();
  const NumericsProfile& numerics = evidence_.numerics;
  double top = kHidden;
  for (const double s : row.score) top = std::isnan(s) || std::isnan(top) ? kNan : std::max(top, s);
  row.p.assign(static_cast<std::size_t>(n), 0);
  row.keep.assign(static_cast<std::size_t>(n), 1);
  row.o.assign(static_cast<std::size_t>(width), 0);
  row.o_tolerance.assign(static_cast<std::size_t>(width), 0);
  row.empty = top == kHidden;
  if (row.empty) {
    row.lse = r.empty_lse_positive ? -kHidden : kHidden;
    if (r.empty_row == EmptyRow::nan) std::fill(row.o.begin(), row.o.end(), kNan);
    for (std::int64_t j = 0; j < n && r.empty_row == EmptyRow::mean; ++j) {
      for (std::int64_t c = 0; c < width; ++c) {
        row.o[c] += keys.v(j, c) / static_cast<double>(n);
        row.o_tolerance[c] += std::abs(keys.v(j, c)) / static_cast<double>(n) * (numerics.out.u + numerics.p.u + 0x1p-18);
      }
    }
    return;
  }
  double sum = 0;
  for (std::int64_t j = 0; j < n; ++j) {
    row.p[j] = std::exp(row.score[j] - top);
    if (r.tile_fault == TileFault::last_twice && j / r.tile == (n - 1) / r.tile) row.p[j] *= 2;
    sum += row.p[j];
  }
  for (double& p : row.p) p /= sum;
  if (r.problem.dropout) {
    const double kept = keep_scale(r);
    for (std::int64_t j = 0; j < n; ++j) row.keep[j] = row.p[j] == 0 ? 0 : kept * keeps(r, row.at, j);
  }
  const double lse_before = row.lse;  // of the unmasked scores, where the reading wants that
  row.lse = r.lse == LseKind::unmasked ? lse_before : reported_lse(r, row, top, sum);
  const double lse_unit = r.problem.dtype == Dtype::f64 ? 0x1p-53 : 0x1p-24;
  const double sums = (static_cast<double>(n) / 8 + 16) * numerics.u;
  row.lse_tolerance = (lse_unit + 4 * numerics.u) * (std::abs(row.lse) + std::abs(top)) +
                      (2 * row.score_error + sums + numerics.log_error + (numerics.l_from_rounded ? numerics.p.u : 0)) *
                          (r.lse == LseKind::base2 ? 1.5 : r.lse == LseKind::unscaled || r.lse == LseKind::max_unscaled
                                                               ? std::max(1.0, 1 / std::abs(r.problem.effective_scale()))
                                                               : 1);
  const std::vector<double> factor = tile_weights(r, row, top);
  std::vector<double> size(static_cast<std::size_t>(width), 0);  // sum of |terms|
  std::vector<double> lost(static_cast<std::size_t>(width), 0);  // P below its type's smallest number
  const double step = numerics.p.subnormal / 2 / numerics.p_scale / sum;
  for (std::int64_t j = 0; j < n; ++j) {
    const double w = row.p[j] * row.keep[j] * factor[j];
    if (w == 0) continue;
    for (std::int64_t c = 0; c < width; ++c) {
      const double term = w * keys.v(j, c);
      row.o[c] += term;
      size[c] += std::abs(term);
      lost[c] += row.keep[j] * std::abs(keys.v(j, c));
    }
  }
  const double relative = numerics.p.u + 2 * row.score_error + sums;
  for (std::int64_t c = 0; c < width; ++c) {
    row.o_tolerance[c] = numerics.out.u * std::abs(row.o[c]) + relative * size[c] + step * lost[c] + numerics.out.subnormal;
  }
}

SoftRow Evaluator::soft_row(const Reading& reading, const RowAt& at) const {
  KeysPtr keys;
  return soft_row(reading, at, keys);
}

SoftRow Evaluator::soft_row(const Reading& reading, const RowAt& at, KeysPtr& keys) const {
  SoftRow row;
  row.known = place(reading, at, row.at);
  if (!row.known) return row;
  keys = keys_for(reading, row.at);
  row.known = read_query(reading, TensorId::q, row.at, row.q);
  if (!row.known) return row;
  if (reading.lse == LseKind::unmasked) {
    Reading open = reading;
    open.problem.causal = Causal::none;
    open.problem.window.reset();
    open.problem.mask.reset();
    open.problem.block.reset();
    score(open, *keys, row);
    row.lse = log_sum_exp(row.score);
  }
  score(reading, *keys, row);
  for (const std::int64_t j : keys->outside) row.known &= row.score[j] == kHidden;
  if (!row.known) return row;
  softmax(reading, *keys, row);
  return row;
}

}  // namespace attest::diagnose

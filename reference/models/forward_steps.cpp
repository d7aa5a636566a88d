// SPDX-License-Identifier: Apache-2.0
#include "reference/models/forward_steps.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/models/exponential.h"
#include "reference/models/rounding.h"
#include "reference/models/row_reductions.h"
#include "reference/models/tensor_core.h"

namespace attest {

template <typename Real>
void StateRows<Real>::reset(std::int64_t rows) {
  std::fill_n(u.begin(), rows * width, Real(0));
  states.resize(static_cast<std::size_t>(rows));
  for (std::int64_t r = 0; r < rows; ++r)
    states[static_cast<std::size_t>(r)] = {.u = {u.data() + r * width, static_cast<std::size_t>(width)}};
}

template <typename Real>
void product_of(const ModelOptions& options, std::int64_t rows, std::int64_t cols, std::int64_t depth,
                Matrix<const Real> a, Matrix<const Real> b, Matrix<Real> c, const Matrix<const Real>* seen,
                bool transposed) {
  if constexpr (std::is_same_v<Real, float>)
    if (options.accumulation)
      return multiply_add_blocks(*options.accumulation, rows, cols, depth, a, b, c, seen, transposed);
  if (seen != nullptr)
    multiply_add_seen(rows, cols, depth, a, b, c, *seen, transposed);
  else
    multiply_add(rows, cols, depth, a, b, c);
}

template <typename Real>
void ForwardSteps<Real>::scores(ScoreTile<Real>& s) {
  const Tile& tile = s.tile;
  const attest_problem& problem = head_.view().problem();
  const std::int64_t elements = tile.rows * tile.cols;
  ledger_.matmul(tile.rows, tile.cols, head_.dim());
  ledger_.elementwise(elements, elements * (1 + problem.has_bias + problem.has_alibi + (problem.softcap > 0 ? 3 : 0)));
  if (problem.has_bias) ledger_.read(Moved::bias, elements);
  if (problem.has_mask) ledger_.read(Moved::mask, elements);
  if (ledger_.counts_only()) return;
  for (std::int64_t r = 0; r < tile.rows; ++r) std::fill_n(s.matrix().row(r), tile.cols, Real(0));
  product_of<Real>(options_, tile.rows, tile.cols, head_.dim(), head_.q(tile.i), head_.kv().k_transposed(tile.j),
                   s.matrix(), nullptr, false);
  head_.finish_scores(tile, s.matrix());
  for (std::int64_t r = 0; r < tile.rows; ++r) round_all(options_.s, s.matrix().row(r), tile.cols);
  if (!head_.kv().v_finite()) s.seen = s.x;
}

template <typename Real>
void ForwardSteps<Real>::follow_maximum(ScoreTile<Real>& s, StateRows<Real>& rows, std::int64_t first_row) {
  const Tile& tile = s.tile;
  ledger_.elementwise(tile.rows * tile.cols, tile.rows * tile.cols);
  ledger_.elementwise(tile.rows * rows.width, tile.rows * (rows.width + 3));
  if (ledger_.counts_only()) return;
  const Real threshold = static_cast<Real>(options_.rescale_threshold * 0.6931471805599453);
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    SoftmaxState<Real>& state = rows[first_row + r];
    const Real m = max_or_nan(state.m, row_max(s.matrix().row(r), tile.cols));
    if (std::isfinite(state.m) && m - state.m <= threshold) continue;  // FA4: a small rise is not followed
    if (options_.rescale == Rescale::as_printed && std::isfinite(state.m)) {
      const Real printed = 1 / rescale_factor(state.m, m), correct = rescale_factor(state.m, m);
      for (Real& x : state.u) x *= printed;
      state.l *= correct;
      state.m = m;
      continue;
    }
    move_reference(state, m);
  }
}

template <typename Real>
void ForwardSteps<Real>::exponentials(ScoreTile<Real>& p, StateRows<Real>& rows, std::int64_t first_row) {
  const Tile& tile = p.tile;
  ledger_.elementwise(tile.rows * tile.cols, 3 * tile.rows * tile.cols);
  if (ledger_.counts_only()) return;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    SoftmaxState<Real>& state = rows[first_row + r];
    const bool nothing_seen = state.m == -std::numeric_limits<Real>::infinity();
    exponential_all(p.matrix().row(r), tile.cols, nothing_seen ? Real(0) : state.m);
    state.l += row_sum(p.matrix().row(r), tile.cols);  // of P before dropout and before rounding
  }
}

template <typename Real>
void ForwardSteps<Real>::multiply_values(ScoreTile<Real>& p, Matrix<Real> u) {
  const Tile& tile = p.tile;
  ledger_.matmul(tile.rows, head_.dim_v(), tile.cols);
  if (head_.view().problem().has_dropout) ledger_.elementwise(tile.rows * tile.cols, tile.rows * tile.cols);
  if (ledger_.counts_only()) return;
  head_.drop(tile, p.matrix(), Real(1));
  const Real descale = store_p(p);
  if (!options_.p_tile_scale) return product(p, u);
  scaled_product_.assign(static_cast<std::size_t>(tile.rows * head_.dim_v()), Real(0));
  const Matrix<Real> scaled{scaled_product_.data(), head_.dim_v()};
  product(p, scaled);
  for (std::int64_t r = 0; r < tile.rows; ++r)
    for (std::int64_t c = 0; c < head_.dim_v(); ++c) u.row(r)[c] += scaled.row(r)[c] * descale;
}

/// P to its type. Returns the factor that undoes the tile's own scale, relative to 2^p_offset.
template <typename Real>
Real ForwardSteps<Real>::store_p(ScoreTile<Real>& p) {
  const Tile& tile = p.tile;
  int power = options_.p_offset;
  if (options_.p_tile_scale) {
    Real max = 0;
    for (std::int64_t r = 0; r < tile.rows; ++r) max = std::max(max, row_max(p.matrix().row(r), tile.cols));
    if (max > 0 && std::isfinite(max))
      power = std::min(120, std::ilogb(static_cast<Real>(format_of(options_.p_forward).max) / max));
  }
  const Real factor = std::ldexp(Real(1), power);
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    Real* row = p.matrix().row(r);
    if (power != 0)
      for (std::int64_t c = 0; c < tile.cols; ++c) row[c] *= factor;
    round_all(options_.p_forward, row, tile.cols);
  }
  return std::ldexp(Real(1), options_.p_offset - power);
}

template <typename Real>
void ForwardSteps<Real>::product(const ScoreTile<Real>& p, Matrix<Real> u) {
  const Matrix<const Real> seen{p.seen.data(), p.stride};
  product_of<Real>(options_, p.tile.rows, head_.dim_v(), p.tile.cols, {p.x.data(), p.stride}, head_.kv().v(p.tile.j), u,
                   head_.kv().v_finite() ? nullptr : &seen, false);
}

template <typename Real>
void ForwardSteps<Real>::finish_rows(std::int64_t i, std::int64_t count, StateRows<Real>& rows,
                                     std::int64_t first_row) {
  ledger_.elementwise(count * rows.width, count * (rows.width + 3));
  ledger_.write(Moved::o, count * rows.width);
  ledger_.write(Moved::lse, count);
  if (ledger_.counts_only()) return;
  const CallView& view = head_.view();
  const Real factor = head_.keep_factor() * std::ldexp(Real(1), -options_.p_offset);
  for (std::int64_t r = 0; r < count; ++r)
    view.write_lse(head_.b(), head_.h(), i + r, finish(rows[first_row + r], factor));
  view.write(view.call().o, CallView::Side::query, view.problem().out_dtype, head_.b(), head_.h(), i, count, rows.width,
             rows.matrix(first_row).data);
}

#define ATTEST_INSTANTIATE(Real)                                                                              \
  template struct StateRows<Real>;                                                                            \
  template class ForwardSteps<Real>;                                                                          \
  template void product_of(const ModelOptions&, std::int64_t, std::int64_t, std::int64_t, Matrix<const Real>, \
                           Matrix<const Real>, Matrix<Real>, const Matrix<const Real>*, bool);
ATTEST_INSTANTIATE(float)
ATTEST_INSTANTIATE(double)
#undef ATTEST_INSTANTIATE

}  // namespace attest

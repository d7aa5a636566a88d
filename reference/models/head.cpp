// SPDX-License-Identifier: Apache-2.0
#include "reference/models/head.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/models/dropout.h"
#include "reference/models/fp8_operands.h"
#include "reference/models/ledger.h"

namespace attest {

template <typename Real>
bool all_finite(const std::vector<Real>& x) {
  Real sum = 0;  // 0 * x is 0 for finite x and NaN otherwise
  for (Real value : x) sum += Real(0) * value;
  return sum == 0;
}

namespace {

template <typename Real>
std::vector<Real> transposed_blocks(const std::vector<Real>& x, std::int64_t rows, std::int64_t width,
                                    std::int64_t block) {
  const std::int64_t blocks = (rows + block - 1) / block;
  std::vector<Real> to(static_cast<std::size_t>(blocks * block * width));
  for (std::int64_t j = 0; j < rows; j += block)
    transpose<Real>(std::min(block, rows - j), width, {x.data() + j * width, width}, {to.data() + j * width, block});
  return to;
}

}  // namespace

template <typename Real>
KeyValues<Real>::KeyValues(const CallView& view, std::int64_t b, std::int64_t head_kv, const ModelOptions& options)
    : dim_(view.problem().dim), dim_v_(view.problem().dim_v), key_tile_(options.key_tile) {
  if (options.ledger != nullptr && options.ledger->counts_only()) return;
  const std::int64_t keys = view.keys(b);
  const std::int32_t type = view.problem().dtype;
  k_.resize(static_cast<std::size_t>(keys * dim_));
  v_.resize(static_cast<std::size_t>(keys * dim_v_));
  view.read(view.call().k, CallView::Side::key, type, b, head_kv, dim_, k_.data());
  view.read(view.call().v, CallView::Side::key, type, b, head_kv, dim_v_, v_.data());
  if (options.fp8) {
    if (options.fp8->incoherent) mix_columns(k_.data(), keys, dim_);
    const std::int64_t rows = options.fp8->per_block ? key_tile_ : keys;
    quantise(k_.data(), keys, dim_, rows);
    quantise(v_.data(), keys, dim_v_, rows);
  }
  k_transposed_ = transposed_blocks(k_, keys, dim_, key_tile_);
  v_transposed_ = transposed_blocks(v_, keys, dim_v_, key_tile_);
  k_finite_ = all_finite(k_);
  v_finite_ = all_finite(v_);
}

template <typename Real>
Matrix<const Real> KeyValues<Real>::k_transposed(std::int64_t j) const {
  return {k_transposed_.data() + j / key_tile_ * key_tile_ * dim_ + j % key_tile_, key_tile_};
}

template <typename Real>
Matrix<const Real> KeyValues<Real>::v_transposed(std::int64_t j) const {
  return {v_transposed_.data() + j / key_tile_ * key_tile_ * dim_v_ + j % key_tile_, key_tile_};
}

template <typename Real>
Head<Real>::Head(const CallView& view, const KeyValues<Real>& kv, std::int64_t b, std::int64_t h,
                 const ModelOptions& options)
    : view_(view), kv_(kv), b_(b), h_(h) {
  if (options.ledger != nullptr && options.ledger->counts_only()) return;
  q_.resize(static_cast<std::size_t>(queries() * dim()));
  view.read(view.call().q, CallView::Side::query, view.problem().dtype, b, h, dim(), q_.data());
  if (options.fp8) {
    if (options.fp8->incoherent) mix_columns(q_.data(), queries(), dim());
    quantise(q_.data(), queries(), dim(), options.fp8->per_block ? options.query_tile : queries());
  }
  q_finite_ = all_finite(q_);
}

template <typename Real>
Real Head<Real>::keep_factor() const {
  const attest_problem& problem = view_.problem();
  return problem.has_dropout ? static_cast<Real>(1.0 / (1.0 - problem.dropout_p)) : Real(1);
}

template <typename Real>
bool Head<Real>::any_seen(const Tile& tile) const {
  const attest_problem& problem = view_.problem();
  for (std::int64_t i = tile.i; i < tile.i + tile.rows; ++i) {
    const SeenKeys seen = view_.seen_keys(b_, i);
    const std::int64_t first = std::max(seen.first, tile.j);
    const std::int64_t last = std::min(seen.last, tile.j + tile.cols);
    if (first >= last) continue;
    if (!problem.has_block_mask) return true;
    const std::int64_t step = problem.block_cols;
    for (std::int64_t j = first; j < last; j = (j / step + 1) * step)
      if (view_.block_shown(b_, h_, i, j)) return true;
  }
  return false;
}

template <typename Real>
void Head<Real>::finish_scores(const Tile& tile, Matrix<Real> s, const Matrix<Real>* capped) const {
  for (std::int64_t r = 0; r < tile.rows; ++r)
    finish_row(tile.i + r, tile, s.row(r), capped == nullptr ? nullptr : capped->row(r));
}

template <typename Real>
void Head<Real>::finish_row(std::int64_t i, const Tile& tile, Real* s, Real* capped) const {
  constexpr Real kHidden = -std::numeric_limits<Real>::infinity();
  const SeenKeys seen = view_.seen_keys(b_, i);
  const std::int64_t first = std::clamp<std::int64_t>(seen.first - tile.j, 0, tile.cols);
  const std::int64_t last = std::clamp<std::int64_t>(seen.last - tile.j, first, tile.cols);
  std::fill(s, s + first, kHidden);
  std::fill(s + last, s + tile.cols, kHidden);
  const Real tau = scale();
  for (std::int64_t c = first; c < last; ++c) s[c] *= tau;
  if (const auto cap = static_cast<Real>(view_.problem().softcap); cap > 0)
    for (std::int64_t c = first; c < last; ++c) {
      const Real t = std::tanh(s[c] / cap);
      s[c] = cap * t;
      if (capped != nullptr) capped[c] = 1 - t * t;
    }
  if (view_.adds())
    for (std::int64_t c = first; c < last; ++c) {
      const auto added = static_cast<Real>(view_.added(b_, h_, i, tile.j + c));
      s[c] = added == kHidden ? kHidden : s[c] + added;
    }
  if (view_.has_masks())
    for (std::int64_t c = first; c < last; ++c)
      if (!view_.shown(b_, h_, i, tile.j + c)) s[c] = kHidden;
}

template <typename Real>
void Head<Real>::drop(const Tile& tile, Matrix<Real> x, Real factor) const {
  const attest_problem& problem = view_.problem();
  if (!problem.has_dropout) return;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    DropoutRow row(problem.dropout_p, problem.dropout_seed, problem.dropout_offset, b_ * problem.heads_q + h_,
                   tile.i + r);
    for (std::int64_t c = 0; c < tile.cols; ++c) x.row(r)[c] = row.keep(tile.j + c) ? x.row(r)[c] * factor : Real(0);
  }
}

template bool all_finite(const std::vector<float>&);
template bool all_finite(const std::vector<double>&);
template class KeyValues<float>;
template class KeyValues<double>;
template class Head<float>;
template class Head<double>;

}  // namespace attest

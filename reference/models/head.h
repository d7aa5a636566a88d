// SPDX-License-Identifier: Apache-2.0
// What a model computes on: one sequence's keys and values (KeyValues) and one query head of it (Head), converted
// once to the arithmetic type, and the tiles of scores and dropout that every model needs. Real is double for f64
// problems and float for all others. With a ledger that only counts they hold no data.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/models/call_view.h"
#include "reference/models/matmul.h"
#include "reference/models/model_options.h"

namespace attest {

/// Rows [i, i + rows) and keys [j, j + cols) of one head.
struct Tile {
  std::int64_t i;
  std::int64_t rows;
  std::int64_t j;
  std::int64_t cols;
};

template <typename Real>
bool all_finite(const std::vector<Real>& x);

template <typename Real>
class KeyValues {
 public:
  /// Transposed copies are laid out in blocks of `key_tile` keys.
  KeyValues(const CallView& view, std::int64_t b, std::int64_t head_kv, const ModelOptions& options);

  Matrix<const Real> k(std::int64_t j) const { return {k_.data() + j * dim_, dim_}; }      // [Sk - j, D]
  Matrix<const Real> v(std::int64_t j) const { return {v_.data() + j * dim_v_, dim_v_}; }  // [Sk - j, Dv]
  Matrix<const Real> k_transposed(std::int64_t j) const;                                   // [D, key_tile]
  Matrix<const Real> v_transposed(std::int64_t j) const;                                   // [Dv, key_tile]
  bool k_finite() const { return k_finite_; }
  bool v_finite() const { return v_finite_; }
  std::int64_t key_tile() const { return key_tile_; }

 private:
  std::int64_t dim_, dim_v_, key_tile_;
  std::vector<Real> k_, v_;                        // [Sk, D], [Sk, Dv]
  std::vector<Real> k_transposed_, v_transposed_;  // per block [D, key_tile], [Dv, key_tile]
  bool k_finite_ = true, v_finite_ = true;
};

template <typename Real>
class Head {
 public:
  Head(const CallView& view, const KeyValues<Real>& kv, std::int64_t b, std::int64_t h, const ModelOptions& options);

  const CallView& view() const { return view_; }
  const KeyValues<Real>& kv() const { return kv_; }
  std::int64_t b() const { return b_; }
  std::int64_t h() const { return h_; }
  std::int64_t queries() const { return view_.queries(b_); }
  std::int64_t keys() const { return view_.keys(b_); }
  std::int64_t dim() const { return view_.problem().dim; }
  std::int64_t dim_v() const { return view_.problem().dim_v; }
  Real scale() const { return static_cast<Real>(view_.problem().scale); }
  /// 1 / (1 - p), 1 without dropout.
  Real keep_factor() const;

  Matrix<const Real> q(std::int64_t i) const { return {q_.data() + i * dim(), dim()}; }  // [Sq - i, D]
  bool q_finite() const { return q_finite_; }

  /// Whether range and block mask leave anything of the tile to see; false lets a model skip it.
  bool any_seen(const Tile& tile) const;
  /// Makes scores of products <q, k>: scale, softcap, biases, and -inf where hidden; `capped` also gets 1 - tanh^2 of
  /// the softcap when asked for.
  void finish_scores(const Tile& tile, Matrix<Real> s, const Matrix<Real>* capped = nullptr) const;  // [rows, cols]
  /// Sets x to 0 where dropout does not keep (i, j), and multiplies by `factor` elsewhere; nothing without dropout.
  void drop(const Tile& tile, Matrix<Real> x, Real factor) const;  // [rows, cols]

 private:
  void finish_row(std::int64_t i, const Tile& tile, Real* s, Real* capped) const;  // [cols]

  const CallView& view_;
  const KeyValues<Real>& kv_;
  std::int64_t b_, h_;
  std::vector<Real> q_;  // [Sq, D]
  bool q_finite_ = true;
};

}  // namespace attest

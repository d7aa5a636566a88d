// SPDX-License-Identifier: Apache-2.0
// The steps that the forwards of the tiled models are made of, on one head, each counted in the ledger. A model's file
// is its loops over tiles, its loads and stores, and the order of these steps.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/models/head.h"
#include "reference/models/ledger.h"
#include "reference/models/model_options.h"
#include "reference/models/softmax_state.h"

namespace attest {

/// A tile of scores, which becomes a tile of P in place.
template <typename Real>
struct ScoreTile {
  explicit ScoreTile(const ModelOptions& options)
      : stride(options.key_tile), x(static_cast<std::size_t>(options.query_tile * options.key_tile)) {}
  Matrix<Real> matrix() { return {x.data(), stride}; }

  Tile tile{};
  std::int64_t stride;
  std::vector<Real> x;     // [Br, Bc]
  std::vector<Real> seen;  // [Br, Bc] the scores as they were; only where V holds NaN or infinity
};

/// The states of some query rows, u side by side.
template <typename Real>
struct StateRows {
  StateRows(std::int64_t rows, std::int64_t width_) : width(width_), u(static_cast<std::size_t>(rows * width_)) {
    reset(rows);
  }
  void reset(std::int64_t rows);
  SoftmaxState<Real>& operator[](std::int64_t r) { return states[static_cast<std::size_t>(r)]; }
  Matrix<Real> matrix(std::int64_t r = 0) { return {u.data() + r * width, width}; }

  std::int64_t width;
  std::vector<Real> u;  // [rows, Dv]
  std::vector<SoftmaxState<Real>> states;
};

/// What every loop over tiles needs: `const auto [head, br, bc, d, dv, ledger] = steps.loop()`.
template <typename Real>
struct TileLoop {
  const Head<Real>& head;
  std::int64_t br, bc;  // tile of queries, of keys
  std::int64_t d, dv;
  Ledger& ledger;
};

template <typename Real>
class ForwardSteps {
 public:
  ForwardSteps(const Head<Real>& head, const ModelOptions& options, Ledger& ledger)
      : head_(head), options_(options), ledger_(ledger) {}

  /// S = Q K^T of s.tile, scaled, masked, biased.
  void scores(ScoreTile<Real>& s);
  /// m' = max(m, rowmax S); l and u are multiplied by exp(m - m'), as options.rescale and its threshold have it.
  void follow_maximum(ScoreTile<Real>& s, StateRows<Real>& rows, std::int64_t first_row = 0);
  /// P = exp(S - m), l = l + rowsum P.
  void exponentials(ScoreTile<Real>& p, StateRows<Real>& rows, std::int64_t first_row = 0);
  /// u = u + P V, P after dropout and in its own type.
  void multiply_values(ScoreTile<Real>& p, Matrix<Real> u);  // [Br, Dv]
  /// O = u / l and LSE of rows [i, i + count).
  void finish_rows(std::int64_t i, std::int64_t count, StateRows<Real>& rows, std::int64_t first_row = 0);

  /// All steps of FA2 for one key tile.
  void absorb(ScoreTile<Real>& s, StateRows<Real>& rows) {
    scores(s);
    follow_maximum(s, rows);
    exponentials(s, rows);
    multiply_values(s, rows.matrix());
  }

  /// K_j and V_j of `keys` keys from slow memory.
  void load_keys(std::int64_t keys) {
    ledger_.read(Moved::k, keys * head_.dim());
    ledger_.read(Moved::v, keys * head_.dim_v());
  }

  TileLoop<Real> loop() {
    return {head_, options_.query_tile, options_.key_tile, head_.dim(), head_.dim_v(), ledger_};
  }
  Ledger& ledger() { return ledger_; }
  const Head<Real>& head() const { return head_; }
  const ModelOptions& options() const { return options_; }

 private:
  Real store_p(ScoreTile<Real>& p);
  void product(const ScoreTile<Real>& p, Matrix<Real> u);

  const Head<Real>& head_;
  const ModelOptions& options_;
  Ledger& ledger_;
  std::vector<Real> scaled_product_;  // [Br, Dv]; only with a scale per tile
};

/// Runs body(steps) for every query head, with the call's keys converted once per key/value head.
template <typename Real, typename Body>
void for_each_head(const attest_call& call, const ModelOptions& options, const Body& body) {
  const CallView view(call);
  Ledger unused;
  Ledger& ledger = options.ledger != nullptr ? *options.ledger : unused;
  for (std::int64_t b = 0; b < view.problem().batch; ++b)
    for (std::int64_t g = 0; g < view.problem().heads_kv; ++g) {
      const KeyValues<Real> kv(view, b, g, options);
      for (std::int64_t h = g * view.group(); h < (g + 1) * view.group(); ++h) {
        const Head<Real> head(view, kv, b, h, options);
        ForwardSteps<Real> steps(head, options, ledger);
        body(steps);
      }
    }
}

/// The same with the arithmetic type that the call's types ask for; body is a template lambda.
template <typename Body>
void for_each_head_of(const attest_call& call, const ModelOptions& options, const Body& body) {
  if (call.problem->dtype == ATTEST_F64)
    for_each_head<double>(call, options, [&](auto& steps) { body(steps); });
  else
    for_each_head<float>(call, options, [&](auto& steps) { body(steps); });
}

/// C += A B as the options have products accumulate; `seen` as in multiply_add_seen, null where B is finite.
template <typename Real>
void product_of(const ModelOptions& options, std::int64_t rows, std::int64_t cols, std::int64_t depth,
                Matrix<const Real> a, Matrix<const Real> b, Matrix<Real> c, const Matrix<const Real>* seen,
                bool transposed);

}  // namespace attest

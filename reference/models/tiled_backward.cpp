// SPDX-License-Identifier: Apache-2.0
// Key tiles outer, query tiles inner, P recomputed from the logsumexp: FlashAttention-2 (Dao 2023), Algorithm 2, whose
// line numbers are cited, and FlashAttention (Dao et al. 2022), Algorithm 4. dQ accumulates over the key tiles; dK and
// dV over the query tiles and over the query heads that share the key/value head. The scale, left out of FA2's
// listing, multiplies dQ and dK. Algorithm 4 has P = exp(S - m) / l; the ABI hands over m + log l instead.
// Algorithm 2 lists O among the loads of its inner loop, but uses it only for delta: it is loaded there alone.
#include <algorithm>
#include <limits>
#include <vector>

#include "reference/models/d_bias.h"
#include "reference/models/exponential.h"
#include "reference/models/forward_steps.h"
#include "reference/models/head.h"
#include "reference/models/ledger.h"
#include "reference/models/rounding.h"
#include "reference/models/tiled_backward.h"

namespace attest {
namespace {

/// Gradients of one key/value head, summed over its query heads.
template <typename Real>
struct KeyGradients {
  std::vector<Real> dk;  // [Sk, D]
  std::vector<Real> dv;  // [Sk, Dv]
};

template <typename Real>
class TiledBackward {
 public:
  TiledBackward(ForwardSteps<Real>& steps, BackwardForm form, KeyGradients<Real>& gradients)
      : head_(steps.head()), options_(steps.options()), ledger_(steps.ledger()), form_(form), gradients_(gradients) {
    if (ledger_.counts_only()) return;
    const std::size_t tile = static_cast<std::size_t>(options_.query_tile * options_.key_tile);
    for (std::vector<Real>* x : {&s_, &p_, &dp_, &p_transposed_, &ds_transposed_}) x->resize(tile);
    if (head_.view().problem().softcap > 0) capped_.resize(tile);
    read_rows();
  }

  void run() {
    const std::int64_t d = head_.dim(), dv = head_.dim_v();
    set_up();
    ledger_.phase("backward");
    for (std::int64_t j = 0; j < head_.keys(); j += options_.key_tile) {  // line 5
      const std::int64_t cols = std::min(options_.key_tile, head_.keys() - j);
      const auto held = ledger_.hold(2 * cols * (d + dv));  // K_j, V_j, dK_j, dV_j
      ledger_.read(Moved::k, cols * d);                     // line 6
      ledger_.read(Moved::v, cols * dv);
      for (std::int64_t i = 0; i < head_.queries(); i += options_.query_tile) {  // line 8
        const Tile tile{i, std::min(options_.query_tile, head_.queries() - i), j, cols};
        if (!head_.any_seen(tile)) continue;
        const auto held_queries = load_queries(tile);  // line 9
        probabilities(tile);                           // lines 10 and 11
        score_gradients(tile);                         // lines 13 and 14
        add_products(tile);                            // lines 12, 15 and 16
        ledger_.write(Moved::dq, tile.rows * d);
      }
      ledger_.write(Moved::dk, cols * d);  // line 18
      ledger_.write(Moved::dv, cols * dv);
    }
    if (ledger_.counts_only()) return;
    for (Real& x : dq_) x *= head_.scale();
    const CallView& view = head_.view();
    view.write(view.call().dq, CallView::Side::query, view.problem().out_dtype, head_.b(), head_.h(), 0,
               head_.queries(), d, dq_.data());
  }

 private:
  /// What is written before the loops: dQ = 0 (FA1: dK and dV too), and FA2's delta.
  void set_up() {
    const std::int64_t sq = head_.queries(), sk = head_.keys(), d = head_.dim(), dv = head_.dim_v();
    ledger_.phase("set up");
    ledger_.write(Moved::dq, sq * d);
    ledger_.keep(2 * sq);  // l and m, or L and delta
    if (form_ == BackwardForm::fa1) {
      ledger_.write(Moved::dk, sk * d);
      ledger_.write(Moved::dv, sk * dv);
      return;
    }
    ledger_.phase("delta");
    ledger_.read(Moved::o, sq * dv);
    ledger_.read(Moved::d_o, sq * dv);
    ledger_.elementwise(sq * dv, 2 * sq * dv);
    ledger_.write(Moved::delta, sq);
  }

  Ledger::Held load_queries(const Tile& tile) {
    const std::int64_t rows = tile.rows, d = head_.dim(), dv = head_.dim_v();
    const bool fa1 = form_ == BackwardForm::fa1;
    ledger_.read(Moved::q, rows * d);
    ledger_.read(Moved::d_o, rows * dv);
    ledger_.read(Moved::dq, rows * d);
    if (fa1) {
      ledger_.read(Moved::o, rows * dv);
      ledger_.elementwise(rows * dv, 2 * rows * dv);  // delta
    }
    ledger_.read(fa1 ? Moved::l : Moved::lse, rows);
    ledger_.read(fa1 ? Moved::m : Moved::delta, rows);
    return ledger_.hold(rows * (2 * d + (fa1 ? 2 : 1) * dv + 2) + 2 * rows * tile.cols);  // and P, dS
  }

  /// line 4: delta = rowsum(dO o O) - dLSE, from O as it was stored.
  void read_rows() {
    const CallView& view = head_.view();
    const attest_problem& problem = view.problem();
    const std::int64_t rows = head_.queries(), width = head_.dim_v();
    std::vector<Real> o(static_cast<std::size_t>(rows * width));
    d_o_.resize(o.size());
    dq_.resize(static_cast<std::size_t>(rows * head_.dim()));
    view.read(view.call().o, CallView::Side::query, problem.out_dtype, head_.b(), head_.h(), width, o.data());
    view.read(view.call().d_o, CallView::Side::query, problem.dtype, head_.b(), head_.h(), width, d_o_.data());
    d_o_finite_ = all_finite(d_o_);
    for (std::int64_t i = 0; i < rows; ++i) {
      Real delta = 0;
      for (std::int64_t c = 0; c < width; ++c) {
        const auto at = static_cast<std::size_t>(i * width + c);
        delta += d_o_[at] * o[at];
      }
      if (problem.has_d_lse && view.call().d_lse.data != nullptr)
        delta -= static_cast<Real>(view.lse(view.call().d_lse, head_.b(), head_.h(), i));
      delta_.push_back(delta);
      lse_.push_back(static_cast<Real>(view.lse(view.call().lse, head_.b(), head_.h(), i)));
    }
  }

  /// S, then P = exp(S - L), 0 where hidden (a row without keys has L = -inf).
  void probabilities(const Tile& tile) {
    ledger_.matmul(tile.rows, tile.cols, head_.dim());
    ledger_.elementwise(tile.rows * tile.cols, 3 * tile.rows * tile.cols);
    if (head_.view().problem().has_bias) ledger_.read(Moved::bias, tile.rows * tile.cols);
    if (head_.view().problem().has_mask) ledger_.read(Moved::mask, tile.rows * tile.cols);
    if (ledger_.counts_only()) return;
    const Matrix<Real> s{s_.data(), options_.key_tile};
    const Matrix<Real> capped{capped_.data(), options_.key_tile};
    for (std::int64_t r = 0; r < tile.rows; ++r) std::fill_n(s.row(r), tile.cols, Real(0));
    product_of<Real>(options_, tile.rows, tile.cols, head_.dim(), head_.q(tile.i), head_.kv().k_transposed(tile.j), s,
                     nullptr, false);
    head_.finish_scores(tile, s, capped_.empty() ? nullptr : &capped);
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      round_all(options_.s, s.row(r), tile.cols);
      Real* p = p_.data() + r * options_.key_tile;
      const Real lse = lse_[static_cast<std::size_t>(tile.i + r)];
      for (std::int64_t c = 0; c < tile.cols; ++c) {
        const Real x = exponential(s.row(r)[c] - lse);
        p[c] = s.row(r)[c] == kHidden ? Real(0) : x;
      }
    }
  }

  /// dP = dO V^T, dS = P o (dP - delta), kept in dp_; p_ becomes what dV is made of.
  void score_gradients(const Tile& tile) {
    ledger_.matmul(tile.rows, tile.cols, head_.dim_v());
    ledger_.elementwise(tile.rows * tile.cols, (2 + 2 * head_.view().problem().has_dropout) * tile.rows * tile.cols);
    if (ledger_.counts_only()) return;
    const Matrix<Real> dp{dp_.data(), options_.key_tile};
    for (std::int64_t r = 0; r < tile.rows; ++r) std::fill_n(dp.row(r), tile.cols, Real(0));
    product_of<Real>(options_, tile.rows, tile.cols, head_.dim_v(), d_o(tile.i), head_.kv().v_transposed(tile.j), dp,
                     nullptr, false);
    head_.drop(tile, dp, head_.keep_factor());
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const Real delta = delta_[static_cast<std::size_t>(tile.i + r)];
      const Real* s = s_.data() + r * options_.key_tile;
      const Real* p = p_.data() + r * options_.key_tile;
      Real* ds = dp.row(r);
      for (std::int64_t c = 0; c < tile.cols; ++c) ds[c] = s[c] == kHidden ? Real(0) : p[c] * (ds[c] - delta);
    }
    if (head_.view().problem().wants_d_bias)
      for (std::int64_t r = 0; r < tile.rows; ++r)
        add_d_bias_row<Real>(head_, tile.i + r, tile.j, dp.row(r), tile.cols);
    if (!capped_.empty())
      for (std::int64_t r = 0; r < tile.rows; ++r)
        for (std::int64_t c = 0; c < tile.cols; ++c)
          if (const std::int64_t at = r * options_.key_tile + c; s_[static_cast<std::size_t>(at)] != kHidden)
            dp_[static_cast<std::size_t>(at)] *= capped_[static_cast<std::size_t>(at)];
    head_.drop(tile, {p_.data(), options_.key_tile}, Real(1));
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      round_all(options_.p_backward, p_.data() + r * options_.key_tile, tile.cols);
      round_all(options_.p_backward, dp.row(r), tile.cols);
    }
  }

  /// dV += P^T dO, dQ += dS K, dK += dS^T Q.
  void add_products(const Tile& tile) {
    ledger_.matmul(tile.cols, head_.dim_v(), tile.rows);
    ledger_.matmul(tile.rows, head_.dim(), tile.cols);
    ledger_.matmul(tile.cols, head_.dim(), tile.rows);
    if (ledger_.counts_only()) return;
    const std::int64_t bc = options_.key_tile, br = options_.query_tile;
    const Matrix<const Real> ds{dp_.data(), bc}, seen{s_.data(), bc};
    const Matrix<const Real> p_t{p_transposed_.data(), br}, ds_t{ds_transposed_.data(), br};
    transpose<Real>(tile.rows, tile.cols, {p_.data(), bc}, {p_transposed_.data(), br});
    transpose<Real>(tile.rows, tile.cols, ds, {ds_transposed_.data(), br});
    const auto product = [&](bool finite, std::int64_t rows, std::int64_t cols, std::int64_t depth,
                             Matrix<const Real> a, Matrix<const Real> b, Matrix<Real> c, bool transposed) {
      product_of<Real>(options_, rows, cols, depth, a, b, c, finite ? nullptr : &seen, transposed);
    };
    const std::int64_t d = head_.dim(), dv = head_.dim_v();
    product(d_o_finite_, tile.cols, dv, tile.rows, p_t, d_o(tile.i), {gradients_.dv.data() + tile.j * dv, dv}, true);
    product(head_.kv().k_finite(), tile.rows, d, tile.cols, ds, head_.kv().k(tile.j), {dq_.data() + tile.i * d, d},
            false);
    product(head_.q_finite(), tile.cols, d, tile.rows, ds_t, head_.q(tile.i), {gradients_.dk.data() + tile.j * d, d},
            true);
  }

  Matrix<const Real> d_o(std::int64_t i) const {
    return {d_o_.data() + i * head_.dim_v(), head_.dim_v()};
  }  // [Sq - i, Dv]

  static constexpr Real kHidden = -std::numeric_limits<Real>::infinity();
  const Head<Real>& head_;
  const ModelOptions& options_;
  Ledger& ledger_;
  BackwardForm form_;
  KeyGradients<Real>& gradients_;
  std::vector<Real> d_o_;                           // [Sq, Dv]
  std::vector<Real> delta_, lse_;                   // [Sq]
  std::vector<Real> dq_;                            // [Sq, D]
  std::vector<Real> s_, p_, dp_, capped_;           // [Br, Bc]; dp_ becomes dS
  std::vector<Real> p_transposed_, ds_transposed_;  // [Bc, Br]
  bool d_o_finite_ = true;
};

template <typename Real>
void backward(const attest_call& call, const ModelOptions& options, BackwardForm form) {
  const CallView view(call);
  const attest_problem& problem = view.problem();
  const bool counts_only = options.ledger != nullptr && options.ledger->counts_only();
  if (problem.wants_d_bias && !counts_only) clear_d_bias<Real>(view);
  KeyGradients<Real> gradients;
  for_each_head<Real>(call, options, [&](ForwardSteps<Real>& steps) {
    const Head<Real>& head = steps.head();
    const std::int64_t keys = head.keys(), in_group = head.h() % view.group();
    if (in_group == 0) {
      gradients.dk.assign(static_cast<std::size_t>(counts_only ? 0 : keys * problem.dim), Real(0));
      gradients.dv.assign(static_cast<std::size_t>(counts_only ? 0 : keys * problem.dim_v), Real(0));
    }
    TiledBackward<Real>(steps, form, gradients).run();
    if (counts_only || in_group + 1 < view.group()) return;
    for (Real& x : gradients.dk) x *= head.scale();
    for (Real& x : gradients.dv) x *= head.keep_factor();
    const std::int64_t g = head.h() / view.group();
    view.write(call.dk, CallView::Side::key, problem.out_dtype, head.b(), g, 0, keys, problem.dim, gradients.dk.data());
    view.write(call.dv, CallView::Side::key, problem.out_dtype, head.b(), g, 0, keys, problem.dim_v,
               gradients.dv.data());
  });
}

}  // namespace

void tiled_backward(const attest_call& call, const ModelOptions& options, BackwardForm form) {
  if (call.problem->dtype == ATTEST_F64)
    backward<double>(call, options, form);
  else
    backward<float>(call, options, form);
}

}  // namespace attest

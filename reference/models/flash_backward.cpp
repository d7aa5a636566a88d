// SPDX-License-Identifier: Apache-2.0
// FlashAttention-2 (Dao 2023), Algorithm 2: key tiles outer, query tiles inner, P recomputed from the logsumexp,
// delta = rowsum(dO o O) computed once. dQ accumulates over the key tiles; dK and dV over the query tiles and over
// the query heads that share the key/value head. The scale, left out of the paper's listing, multiplies dQ and dK.
#include <algorithm>
#include <limits>
#include <vector>

#include "reference/models/d_bias.h"
#include "reference/models/exponential.h"
#include "reference/models/flash.h"
#include "reference/models/head.h"
#include "reference/models/rounding.h"

namespace attest {
namespace {

/// Gradients of one key/value head, summed over its query heads.
template <typename Real>
struct KeyGradients {
  std::vector<Real> dk;  // [Sk, D]
  std::vector<Real> dv;  // [Sk, Dv]
};

template <typename Real>
class FlashBackward {
 public:
  FlashBackward(const Head<Real>& head, const ModelOptions& options, KeyGradients<Real>& gradients)
      : head_(head), options_(options), gradients_(gradients) {
    const std::size_t tile = static_cast<std::size_t>(options.query_tile * options.key_tile);
    for (std::vector<Real>* x : {&s_, &p_, &dp_, &p_transposed_, &ds_transposed_}) x->resize(tile);
    if (head.view().problem().softcap > 0) capped_.resize(tile);
    read_rows();
  }

  void run() {
    for (std::int64_t j = 0; j < head_.keys(); j += options_.key_tile)           // line 5
      for (std::int64_t i = 0; i < head_.queries(); i += options_.query_tile) {  // line 8
        const Tile tile{i, std::min(options_.query_tile, head_.queries() - i), j,
                        std::min(options_.key_tile, head_.keys() - j)};
        if (!head_.any_seen(tile)) continue;
        probabilities(tile);
        score_gradients(tile);
        add_products(tile);
      }
    for (Real& x : dq_) x *= head_.scale();
    const CallView& view = head_.view();
    view.write(view.call().dq, CallView::Side::query, view.problem().out_dtype, head_.b(), head_.h(), 0,
               head_.queries(), head_.dim(), dq_.data());
  }

 private:
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

  /// lines 11 and 12: S, then P = exp(S - L), 0 where hidden (a row without keys has L = -inf).
  void probabilities(const Tile& tile) {
    const Matrix<Real> s{s_.data(), options_.key_tile};
    const Matrix<Real> capped{capped_.data(), options_.key_tile};
    head_.scores(tile, s, capped_.empty() ? nullptr : &capped);
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      Real* p = p_.data() + r * options_.key_tile;
      const Real lse = lse_[static_cast<std::size_t>(tile.i + r)];
      for (std::int64_t c = 0; c < tile.cols; ++c) {
        const Real x = exponential(s.row(r)[c] - lse);
        p[c] = s.row(r)[c] == kHidden ? Real(0) : x;
      }
    }
  }

  /// lines 14 and 15: dP = dO V^T, dS = P o (dP - delta), kept in dp_; p_ becomes what dV is made of.
  void score_gradients(const Tile& tile) {
    const Matrix<Real> dp{dp_.data(), options_.key_tile};
    for (std::int64_t r = 0; r < tile.rows; ++r) std::fill_n(dp.row(r), tile.cols, Real(0));
    multiply_add<Real>(tile.rows, tile.cols, head_.dim_v(), d_o(tile.i), head_.kv().v_transposed(tile.j), dp);
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

  /// lines 13, 16 and 17: dV += P^T dO, dQ += dS K, dK += dS^T Q.
  void add_products(const Tile& tile) {
    const std::int64_t bc = options_.key_tile, br = options_.query_tile;
    const Matrix<const Real> ds{dp_.data(), bc}, seen{s_.data(), bc};
    const Matrix<const Real> p_t{p_transposed_.data(), br}, ds_t{ds_transposed_.data(), br};
    transpose<Real>(tile.rows, tile.cols, {p_.data(), bc}, {p_transposed_.data(), br});
    transpose<Real>(tile.rows, tile.cols, ds, {ds_transposed_.data(), br});
    const auto product = [&](bool finite, std::int64_t rows, std::int64_t cols, std::int64_t depth,
                             Matrix<const Real> a, Matrix<const Real> b, Matrix<Real> c, bool transposed) {
      if (finite)
        multiply_add<Real>(rows, cols, depth, a, b, c);
      else
        multiply_add_seen<Real>(rows, cols, depth, a, b, c, seen, transposed);
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
  KeyGradients<Real>& gradients_;
  std::vector<Real> d_o_;                           // [Sq, Dv]
  std::vector<Real> delta_, lse_;                   // [Sq]
  std::vector<Real> dq_;                            // [Sq, D]
  std::vector<Real> s_, p_, dp_, capped_;           // [Br, Bc]; dp_ becomes dS
  std::vector<Real> p_transposed_, ds_transposed_;  // [Bc, Br]
  bool d_o_finite_ = true;
};

template <typename Real>
void backward(const attest_call& call, const ModelOptions& options) {
  const CallView view(call);
  const attest_problem& problem = view.problem();
  if (problem.wants_d_bias) clear_d_bias<Real>(view);
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t g = 0; g < problem.heads_kv; ++g) {
      const KeyValues<Real> kv(view, b, g, options.key_tile);
      const std::int64_t keys = view.keys(b);
      KeyGradients<Real> gradients{std::vector<Real>(static_cast<std::size_t>(keys * problem.dim)),
                                   std::vector<Real>(static_cast<std::size_t>(keys * problem.dim_v))};
      Real scale = 1, keep = 1;
      for (std::int64_t h = g * view.group(); h < (g + 1) * view.group(); ++h) {
        const Head<Real> head(view, kv, b, h);
        FlashBackward<Real>(head, options, gradients).run();
        scale = head.scale();
        keep = head.keep_factor();
      }
      for (Real& x : gradients.dk) x *= scale;
      for (Real& x : gradients.dv) x *= keep;
      view.write(call.dk, CallView::Side::key, problem.out_dtype, b, g, 0, keys, problem.dim, gradients.dk.data());
      view.write(call.dv, CallView::Side::key, problem.out_dtype, b, g, 0, keys, problem.dim_v, gradients.dv.data());
    }
}

}  // namespace

void flash_backward(const attest_call& call, const ModelOptions& options) {
  if (call.problem->dtype == ATTEST_F64)
    backward<double>(call, options);
  else
    backward<float>(call, options);
}

}  // namespace attest

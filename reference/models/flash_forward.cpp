// SPDX-License-Identifier: Apache-2.0
// FlashAttention-2 (Dao 2023), Algorithm 1: query tiles outer, key tiles inner, the output kept un-normalised until
// the end, only O and the logsumexp written. The rescale factor of line 10 is exp(m_old - m_new); the paper prints its
// inverse.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/models/exponential.h"
#include "reference/models/flash.h"
#include "reference/models/head.h"
#include "reference/models/rounding.h"
#include "reference/models/row_reductions.h"
#include "reference/models/softmax_state.h"

namespace attest {
namespace {

template <typename Real>
class FlashForward {
 public:
  FlashForward(const Head<Real>& head, const ModelOptions& options)
      : head_(head), options_(options), s_data_(static_cast<std::size_t>(options.query_tile * options.key_tile)),
        u_(static_cast<std::size_t>(options.query_tile * head.dim_v())),
        rows_(static_cast<std::size_t>(options.query_tile)), s_{s_data_.data(), options.key_tile} {
    if (!head.kv().v_finite()) seen_data_ = s_data_;
  }

  void run() {
    for (std::int64_t i = 0; i < head_.queries(); i += options_.query_tile)  // line 3
      query_tile(i, std::min(options_.query_tile, head_.queries() - i));
  }

 private:
  void query_tile(std::int64_t i, std::int64_t rows) {
    const std::int64_t width = head_.dim_v();
    std::fill(u_.begin(), u_.end(), Real(0));  // line 5: O = 0, l = 0, m = -inf
    for (std::int64_t r = 0; r < rows; ++r)
      rows_[static_cast<std::size_t>(r)] = {.u = {u_.data() + r * width, static_cast<std::size_t>(width)}};
    for (std::int64_t j = 0; j < head_.keys(); j += options_.key_tile) {  // line 6
      const Tile tile{i, rows, j, std::min(options_.key_tile, head_.keys() - j)};
      if (head_.any_seen(tile)) key_tile(tile);
    }
    const Real factor = head_.keep_factor() * std::ldexp(Real(1), -options_.p_offset);
    for (std::int64_t r = 0; r < rows; ++r)  // lines 12 to 15
      head_.view().write_lse(head_.b(), head_.h(), i + r, finish(rows_[static_cast<std::size_t>(r)], factor));
    const attest_call& call = head_.view().call();
    head_.view().write(call.o, CallView::Side::query, head_.view().problem().out_dtype, head_.b(), head_.h(), i, rows,
                       width, u_.data());
  }

  void key_tile(const Tile& tile) {
    head_.scores(tile, s_);  // line 8: S = Q K^T, with the scale, masks and biases of the contract
    const bool v_finite = head_.kv().v_finite();
    if (!v_finite) seen_data_ = s_data_;
    for (std::int64_t r = 0; r < tile.rows; ++r) {  // lines 9 and 10
      SoftmaxState<Real>& state = rows_[static_cast<std::size_t>(r)];
      Real* p = s_.row(r);
      move_reference(state, max_or_nan(state.m, row_max(p, tile.cols)));
      exponential_all(p, tile.cols, state.m == -std::numeric_limits<Real>::infinity() ? Real(0) : state.m);
      state.l += row_sum(p, tile.cols);  // of P before dropout and before rounding
    }
    head_.drop(tile, s_, Real(1));
    for (std::int64_t r = 0; r < tile.rows; ++r) store_p(s_.row(r), tile.cols);
    const Matrix<Real> u{u_.data(), head_.dim_v()};
    const Matrix<const Real> p{s_data_.data(), s_.stride};
    if (v_finite)
      multiply_add<Real>(tile.rows, head_.dim_v(), tile.cols, p, head_.kv().v(tile.j), u);
    else
      multiply_add_seen<Real>(tile.rows, head_.dim_v(), tile.cols, p, head_.kv().v(tile.j), u,
                              {seen_data_.data(), s_.stride}, false);
  }

  void store_p(Real* p, std::int64_t cols) const {  // [cols]
    const Real offset = std::ldexp(Real(1), options_.p_offset);
    if (options_.p_offset != 0)
      for (std::int64_t c = 0; c < cols; ++c) p[c] *= offset;
    round_all(options_.p_forward, p, cols);
  }

  const Head<Real>& head_;
  const ModelOptions& options_;
  std::vector<Real> s_data_;     // [Br, Bc] scores, then P
  std::vector<Real> seen_data_;  // [Br, Bc] the scores again, kept where V holds NaN or infinity
  std::vector<Real> u_;          // [Br, Dv]
  std::vector<SoftmaxState<Real>> rows_;
  Matrix<Real> s_;
};

template <typename Real>
void forward(const attest_call& call, const ModelOptions& options) {
  const CallView view(call);
  const attest_problem& problem = view.problem();
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t g = 0; g < problem.heads_kv; ++g) {
      const KeyValues<Real> kv(view, b, g, options.key_tile);
      for (std::int64_t h = g * view.group(); h < (g + 1) * view.group(); ++h) {
        const Head<Real> head(view, kv, b, h);
        FlashForward<Real>(head, options).run();
      }
    }
}

}  // namespace

void flash_forward(const attest_call& call, const ModelOptions& options) {
  if (call.problem->dtype == ATTEST_F64)
    forward<double>(call, options);
  else
    forward<float>(call, options);
}

}  // namespace attest

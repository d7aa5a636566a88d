// SPDX-License-Identifier: Apache-2.0
// The `standard` model: attention as the definition has it, S and P materialised whole (Dao et al. 2022, Algorithms 0
// and 3). P is divided by its row sum, then rounded to the input type; the backward recomputes the softmax from S and
// takes delta = rowsum(P o dP), so it depends on neither O nor LSE.
#include "reference/models/standard.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/models/builtin_call.h"
#include "reference/models/d_bias.h"
#include "reference/models/exponential.h"
#include "reference/models/forward_steps.h"
#include "reference/models/head.h"
#include "reference/models/rounding.h"
#include "reference/models/row_reductions.h"
#include "reference/models/standard_ledger.h"

namespace attest {
namespace {

template <typename Real>
class StandardHead {
 public:
  StandardHead(const Head<Real>& head, const ModelOptions& options)
      : head_(head), options_(options), cols_(head.keys()), whole_{0, head.queries(), 0, head.keys()},
        s_(static_cast<std::size_t>(head.queries() * head.keys())), p_(s_.size()) {}

  void forward() {
    const std::int64_t width = head_.dim_v();
    softmax(true);
    head_.drop(whole_, matrix(p_), head_.keep_factor());
    round_all(options_.p_forward, p_.data(), count(p_));
    std::vector<Real> o(static_cast<std::size_t>(whole_.rows * width));  // [Sq, Dv]
    product(head_.kv().v_finite(), whole_.rows, width, cols_, p_, cols_, head_.kv().v(0), o, false);
    const CallView& view = head_.view();
    view.write(view.call().o, CallView::Side::query, view.problem().out_dtype, head_.b(), head_.h(), 0, whole_.rows,
               width, o.data());
  }

  void backward(std::vector<Real>& dk, std::vector<Real>& dv) {  // [Sk, D], [Sk, Dv]; added to
    const CallView& view = head_.view();
    const std::int64_t width = head_.dim_v(), d = head_.dim(), rows = whole_.rows;
    std::vector<Real> d_o(static_cast<std::size_t>(rows * width));
    view.read(view.call().d_o, CallView::Side::query, view.problem().dtype, head_.b(), head_.h(), width, d_o.data());
    const bool d_o_finite = all_finite(d_o);
    softmax(false);
    std::vector<Real> ds(s_.size());  // [Sq, Sk] dP, then dS
    product_of<Real>(options_, rows, cols_, width, {d_o.data(), width}, head_.kv().v_transposed(0), matrix(ds), nullptr,
                     false);
    head_.drop(whole_, matrix(ds), head_.keep_factor());
    for (std::int64_t i = 0; i < rows; ++i) score_gradient_row(i, ds.data() + i * cols_);
    head_.drop(whole_, matrix(p_), head_.keep_factor());
    round_all(options_.p_backward, p_.data(), count(p_));
    round_all(options_.p_backward, ds.data(), count(ds));

    std::vector<Real> dq(static_cast<std::size_t>(rows * d));
    const std::vector<Real> p_t = transposed(p_), ds_t = transposed(ds);
    product(d_o_finite, cols_, width, rows, p_t, rows, {d_o.data(), width}, dv, true);
    product(head_.kv().k_finite(), rows, d, cols_, ds, cols_, head_.kv().k(0), dq, false);
    product(head_.q_finite(), cols_, d, rows, ds_t, rows, head_.q(0), dk, true);
    for (Real& x : dq) x *= head_.scale();
    view.write(view.call().dq, CallView::Side::query, view.problem().out_dtype, head_.b(), head_.h(), 0, rows, d,
               dq.data());
  }

 private:
  static constexpr Real kHidden = -std::numeric_limits<Real>::infinity();
  static std::int64_t count(const std::vector<Real>& x) { return static_cast<std::int64_t>(x.size()); }
  Matrix<Real> matrix(std::vector<Real>& x) const { return {x.data(), cols_}; }  // [Sq, Sk]

  /// P = softmax(S), a row without keys 0; LSE written in the forward.
  void softmax(bool write_lse) {
    if (!write_lse && head_.view().problem().softcap > 0) capped_.resize(s_.size());
    const Matrix<Real> factors{capped_.data(), cols_};
    std::fill(s_.begin(), s_.end(), Real(0));
    product_of<Real>(options_, whole_.rows, cols_, head_.dim(), head_.q(0), head_.kv().k_transposed(0), matrix(s_),
                     nullptr, false);
    head_.finish_scores(whole_, matrix(s_), capped_.empty() ? nullptr : &factors);
    round_all(options_.s, s_.data(), count(s_));
    p_ = s_;
    for (std::int64_t i = 0; i < whole_.rows; ++i) {
      Real* p = p_.data() + i * cols_;
      const Real m = row_max(p, cols_);
      exponential_all(p, cols_, m == kHidden ? Real(0) : m);
      const Real l = row_sum(p, cols_);
      if (m != kHidden)
        for (std::int64_t j = 0; j < cols_; ++j)
          p[j] = s_[static_cast<std::size_t>(i * cols_ + j)] == kHidden ? Real(0) : p[j] / l;
      if (write_lse)
        head_.view().write_lse(head_.b(), head_.h(), i,
                               m == kHidden ? m : static_cast<double>(m) + std::log(static_cast<double>(l)));
    }
  }

  /// dS = P o (dP - rowsum(P o dP) + dLSE), times the softcap's derivative; hidden elements stay out of the sum.
  void score_gradient_row(std::int64_t i, Real* ds) {  // [Sk]
    const CallView& view = head_.view();
    const Real* s = s_.data() + i * cols_;
    const Real* p = p_.data() + i * cols_;
    Real delta = 0;
    for (std::int64_t j = 0; j < cols_; ++j)
      if (s[j] != kHidden) delta += p[j] * ds[j];
    if (view.problem().has_d_lse && view.call().d_lse.data != nullptr)
      delta -= static_cast<Real>(view.lse(view.call().d_lse, head_.b(), head_.h(), i));
    for (std::int64_t j = 0; j < cols_; ++j) ds[j] = s[j] == kHidden ? Real(0) : p[j] * (ds[j] - delta);
    if (view.problem().wants_d_bias) add_d_bias_row(head_, i, 0, ds, cols_);
    for (std::int64_t j = 0; j < cols_ && !capped_.empty(); ++j)
      if (s[j] != kHidden) ds[j] *= capped_[static_cast<std::size_t>(i * cols_ + j)];
  }

  std::vector<Real> transposed(const std::vector<Real>& x) const {  // [Sq, Sk] -> [Sk, Sq]
    std::vector<Real> to(x.size());
    transpose<Real>(whole_.rows, cols_, {x.data(), cols_}, {to.data(), whole_.rows});
    return to;
  }

  void product(bool finite, std::int64_t rows, std::int64_t cols, std::int64_t depth, const std::vector<Real>& a,
               std::int64_t a_stride, Matrix<const Real> b, std::vector<Real>& c, bool transposed_seen) {
    const Matrix<const Real> seen{s_.data(), cols_};
    product_of<Real>(options_, rows, cols, depth, {a.data(), a_stride}, b, {c.data(), cols}, finite ? nullptr : &seen,
                     transposed_seen);
  }

  const Head<Real>& head_;
  const ModelOptions& options_;
  std::int64_t cols_;
  Tile whole_;
  std::vector<Real> s_, p_, capped_;  // [Sq, Sk]
};

template <typename Real>
void run(const attest_call& call, const ModelOptions& options, std::int32_t direction) {
  const CallView view(call);
  const attest_problem& problem = view.problem();
  const bool counts_only = options.ledger != nullptr && options.ledger->counts_only();
  if (direction == ATTEST_BACKWARD && problem.wants_d_bias && !counts_only) clear_d_bias<Real>(view);
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t g = 0; g < problem.heads_kv; ++g) {
      const std::int64_t keys = view.keys(b);
      const KeyValues<Real> kv(view, b, g, options);
      std::vector<Real> dk(static_cast<std::size_t>(counts_only ? 0 : keys * problem.dim));
      std::vector<Real> dv(static_cast<std::size_t>(counts_only ? 0 : keys * problem.dim_v));
      for (std::int64_t h = g * view.group(); h < (g + 1) * view.group(); ++h) {
        const Head<Real> head(view, kv, b, h, options);
        if (options.ledger != nullptr)
          (direction == ATTEST_FORWARD ? count_standard_forward : count_standard_backward)(problem, view.queries(b),
                                                                                           keys, *options.ledger);
        if (counts_only) continue;
        StandardHead<Real> standard(head, options);
        if (direction == ATTEST_FORWARD)
          standard.forward();
        else
          standard.backward(dk, dv);
      }
      if (direction == ATTEST_FORWARD || counts_only) continue;
      for (Real& x : dk) x *= static_cast<Real>(problem.scale);
      view.write(call.dk, CallView::Side::key, problem.out_dtype, b, g, 0, keys, problem.dim, dk.data());
      view.write(call.dv, CallView::Side::key, problem.out_dtype, b, g, 0, keys, problem.dim_v, dv.data());
    }
}

constexpr std::int64_t kMostElements = std::int64_t{1} << 28;  // of S; a gigabyte as float

std::string declined(const attest_problem& problem) {
  return problem.max_q > 0 && problem.max_k > kMostElements / problem.max_q
             ? "S does not fit: more than 2^28 elements of one head"
             : "";
}

ModelOptions options_of(const attest_problem& problem) {
  ModelOptions options = default_options(problem);
  options.query_tile = std::max<std::int64_t>(problem.max_q, 1);
  options.key_tile = std::max<std::int64_t>(problem.max_k, 1);
  options.p_offset = 0;
  // Normalised P in e4m3 would flush most of a long row to 0: f8 problems keep it in bf16, as in the backward.
  options.p_forward = options.p_backward;
  return options;
}

void declare(const attest_problem& problem, attest_numerics& numerics) {
  numerics.p_normalised = 1;
  numerics.delta_source = ATTEST_DELTA_FROM_F32_O;
  numerics.p_dtype = attest_dtype_of(options_of(problem).p_forward);
  numerics.has_p_dtype_backward = 0;
}

}  // namespace

void standard_forward(const attest_call& call, const ModelOptions& options) {
  problem_is_f64(call) ? run<double>(call, options, ATTEST_FORWARD) : run<float>(call, options, ATTEST_FORWARD);
}

void standard_backward(const attest_call& call, const ModelOptions& options) {
  problem_is_f64(call) ? run<double>(call, options, ATTEST_BACKWARD) : run<float>(call, options, ATTEST_BACKWARD);
}

constinit const attest_kernel kStandardKernel =
    builtin_kernel<standard_forward, standard_backward, options_of, declare, declined>(
        "standard", "materialised softmax(Q K^T) V with P in the input type (FlashAttention Algorithms 0 and 3)");

}  // namespace attest

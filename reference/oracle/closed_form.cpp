// SPDX-License-Identifier: Apache-2.0
#include "reference/oracle/closed_form.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string_view>

#include "reference/oracle/visibility.h"
#include "reference/problem/dtype.h"
#include "reference/problem/exact_inputs.h"

namespace attest {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kHiddenGap = 110;  // exp(-110) is 0 in float32

bool power_of_two(std::int64_t n) { return n > 0 && std::has_single_bit(static_cast<std::uint64_t>(n)); }

/// One query head of one sequence, by places in the tensors.
struct Slice {
  std::int64_t b, h, head_kv, first_q, first_k, sq, sk;
};

class Builder {
 public:
  Builder(const Problem& problem, const Inputs& inputs)
      : problem_(problem), inputs_(inputs), name_(problem.fill.family), out_(problem.output_dtype()) {
    form_.lse.assign(static_cast<std::size_t>(problem.total_q() * problem.heads_q), kNan);
    form_.o = tensor(problem.total_q(), problem.heads_q, problem.width_v());
    if (!problem.wants_backward()) return;
    form_.dq = tensor(problem.total_q(), problem.heads_q, problem.dim);
    form_.dk = tensor(problem.total_k(), problem.heads_kv, problem.dim);
    form_.dv = tensor(problem.total_k(), problem.heads_kv, problem.width_v());
  }

  ClosedForm build() {
    std::int64_t first_q = 0, first_k = 0;
    for (std::int64_t b = 0; b < problem_.batch(); ++b) {
      const std::int64_t sq = problem_.seq_q[static_cast<std::size_t>(b)], sk = problem_.seq_k[static_cast<std::size_t>(b)];
      for (std::int64_t h = 0; h < problem_.heads_q; ++h) {
        const Slice slice = {b, h, h / problem_.group(), first_q, first_k, sq, sk};
        forward(slice);
        if (problem_.wants_backward()) backward(slice);
      }
      first_q += sq;
      first_k += sk;
    }
    round_to_output();
    return std::move(form_);
  }

 private:
  static ClosedTensor tensor(std::int64_t tokens, std::int64_t heads, std::int64_t width) {
    return {Values(tokens, heads, width), std::vector<std::uint8_t>(static_cast<std::size_t>(tokens * heads * width), 0)};
  }

  /// First and last key that causal and window leave to query i.
  std::pair<std::int64_t, std::int64_t> ends(const Slice& s, std::int64_t i) const {
    std::int64_t first = 0, last = s.sk - 1;
    if (problem_.causal != Causal::none) last = std::min(last, problem_.causal == Causal::top_left ? i : i + s.sk - s.sq);
    if (problem_.window) {
      const Causal side = problem_.causal != Causal::none ? problem_.causal : problem_.window->alignment;
      const std::int64_t centre = side == Causal::top_left ? i : i + s.sk - s.sq;
      if (problem_.window->left >= 0) first = std::max(first, centre - problem_.window->left);
      if (problem_.window->right >= 0) last = std::min(last, centre + problem_.window->right);
    }
    return {first, last};
  }

  double v(const Slice& s, std::int64_t j, std::int64_t c) const { return inputs_.v.at(s.first_k + j, s.head_kv, c); }

  void set(ClosedTensor& t, std::int64_t token, std::int64_t head, std::int64_t c, double value, bool exact) {
    t.value.at(token, head, c) = value;
    t.exact[static_cast<std::size_t>((token * t.value.heads + head) * t.value.width + c)] = exact ? 1 : 0;
  }

  double& lse(const Slice& s, std::int64_t i) {
    return form_.lse[static_cast<std::size_t>((s.first_q + i) * problem_.heads_q + s.h)];
  }

  void empty_row(const Slice& s, std::int64_t i) {
    lse(s, i) = -std::numeric_limits<double>::infinity();
    for (std::int64_t c = 0; c < problem_.width_v(); ++c) set(form_.o, s.first_q + i, s.h, c, 0, true);
  }

  void forward(const Slice& s) {
    if (name_ == "exact-ladder" || name_ == "exact-staircase") return ladder(s);
    for (std::int64_t i = 0; i < s.sq; ++i) {
      if (name_ == "exact-census") {
        census(s, i);
      } else if (name_ == "exact-retrieval") {
        retrieve(s, i);
      } else {
        mean(s, i);
      }
    }
  }

  // All visible scores are 0 (or one key is visible): the mean of the visible values, dropped ones counted as 0.
  void mean(const Slice& s, std::int64_t i) {
    const auto [first, last] = ends(s, i);
    const std::int64_t count = last - first + 1;
    if (count <= 0) return empty_row(s, i);
    if (name_ != "exact-diagonal") lse(s, i) = std::log(static_cast<double>(count));
    const bool drops = problem_.dropout.has_value();
    for (std::int64_t c = 0; c < problem_.width_v(); ++c) {
      double sum = 0;
      for (std::int64_t j = first; j <= last; ++j) {
        if (!drops || kept(problem_, s.b, s.h, i, j)) sum += v(s, j, c) * (drops ? 2 : 1);
      }
      set(form_.o, s.first_q + i, s.h, c, sum / static_cast<double>(count), any_count() || power_of_two(count));
    }
    form_.odd_counts |= !power_of_two(count);
  }

  // Families whose o is an integer whatever the count.
  bool any_count() const { return name_ == "exact-prefix" || name_ == "exact-constant" || name_ == "exact-opposite"; }

  void census(const Slice& s, std::int64_t i) {
    std::vector<double> counts(static_cast<std::size_t>(problem_.width_v()), 0);
    double seen = 0;
    for (std::int64_t j = 0; j < s.sk; ++j) {
      const bool shown = problem_.mask ? inputs_.mask.at(s.b, s.h, i, j) != 0 : inputs_.bias.at(s.b, s.h, i, j) == 0;
      if (!shown) continue;
      ++seen;
      for (std::int64_t c = 0; c < problem_.width_v(); ++c) counts[static_cast<std::size_t>(c)] += v(s, j, c);
    }
    if (seen == 0) return empty_row(s, i);
    lse(s, i) = std::log(seen);
    for (std::int64_t c = 0; c < problem_.width_v(); ++c)
      set(form_.o, s.first_q + i, s.h, c, counts[static_cast<std::size_t>(c)] / seen, true);
  }

  // Codes are signs: the retrieved key agrees in all columns, and no other in so many that exp would show it.
  void retrieve(const Slice& s, std::int64_t i) {
    const auto [first, last] = ends(s, i);
    if (first > last) return empty_row(s, i);
    const auto q = inputs_.q.row(s.first_q + i, s.h);
    std::int64_t best = -1;
    double most = 0, second = -std::numeric_limits<double>::infinity();
    for (std::int64_t j = first; j <= last; ++j) {
      const auto k = inputs_.k.row(s.first_k + j, s.head_kv);
      double agreement = 0;
      for (std::size_t c = 0; c < q.size(); ++c) agreement += q[c] * k[c];
      agreement *= problem_.effective_scale();
      if (best < 0 || agreement > most) {
        if (best >= 0) second = std::max(second, most);
        most = agreement;
        best = j;
      } else {
        second = std::max(second, agreement);
      }
    }
    const bool clear = most - second >= kHiddenGap;
    for (std::int64_t c = 0; c < problem_.width_v(); ++c) set(form_.o, s.first_q + i, s.h, c, v(s, best, c), clear);
    retrieved_.push_back(clear ? best : -1);
  }

  void ladder(const Slice& s) {
    if (s.sk == 0) {
      for (std::int64_t i = 0; i < s.sq; ++i) empty_row(s, i);
      return;
    }
    std::vector<double> sums(static_cast<std::size_t>(problem_.width_v()), 0);
    double l = 0;
    for (std::int64_t j = 0; j < s.sk; ++j) {
      const double weight = std::exp2(inputs_.k.at(s.first_k + j, s.head_kv, 0));
      l += weight;
      for (std::int64_t c = 0; c < problem_.width_v(); ++c) sums[static_cast<std::size_t>(c)] += weight * v(s, j, c);
    }
    for (std::int64_t i = 0; i < s.sq; ++i) {
      lse(s, i) = std::log(l);
      for (std::int64_t c = 0; c < problem_.width_v(); ++c)
        set(form_.o, s.first_q + i, s.h, c, sums[static_cast<std::size_t>(c)] / l, sums[static_cast<std::size_t>(c)] != 0);
    }
  }

  double d_o(const Slice& s, std::int64_t i, std::int64_t c) const { return inputs_.d_o.at(s.first_q + i, s.h, c); }

  void backward(const Slice& s) {
    if (name_ == "exact-uniform" || name_ == "exact-uniform-k" || name_ == "exact-duplicate") return uniform_gradients(s);
    if (name_ == "exact-constant") {
      zero(s, true);
      if (problem_.causal == Causal::none && !problem_.window && power_of_two(s.sk)) uniform_dv(s);
    } else if (name_ == "exact-diagonal") {
      zero(s, true);
      copy_dv(s);
    } else if (name_ == "exact-retrieval") {
      retrieval_gradients(s);
    }
  }

  void zero(const Slice& s, bool exact) {
    for (std::int64_t c = 0; c < problem_.dim; ++c) {
      for (std::int64_t i = 0; i < s.sq; ++i) set(form_.dq, s.first_q + i, s.h, c, 0, exact);
      for (std::int64_t j = 0; j < s.sk; ++j) set(form_.dk, s.first_k + j, s.head_kv, c, 0, exact);
    }
  }

  /// Sums over the heads of a group come to `at` one head after the other.
  void add_dv(const Slice& s, std::int64_t j, std::int64_t c, double part) {
    set(form_.dv, s.first_k + j, s.head_kv, c, form_.dv.value.at(s.first_k + j, s.head_kv, c) + part, true);
  }

  void uniform_dv(const Slice& s) {
    for (std::int64_t c = 0; c < problem_.width_v(); ++c) {
      double sum = 0;
      for (std::int64_t i = 0; i < s.sq; ++i) sum += d_o(s, i, c);
      for (std::int64_t j = 0; j < s.sk; ++j) add_dv(s, j, c, sum / static_cast<double>(s.sk));
    }
  }

  // P = 1/n, dS = (<do, v> - <do, o>) / n; with o the mean of v, dq = scale/n do (V - o)^T K, dk = scale/n (V - o) (dO^T Q).
  void uniform_gradients(const Slice& s) {
    uniform_dv(s);
    const bool power_scale = std::abs(problem_.effective_scale()) == std::exp2(std::ilogb(problem_.effective_scale()));
    zero(s, true);
    if (s.sk == 0 || s.sq == 0) return;
    const double factor = problem_.effective_scale() / static_cast<double>(s.sk);
    const std::int64_t width = problem_.width_v(), dim = problem_.dim;
    std::vector<double> kernel(static_cast<std::size_t>(width * dim), 0);  // [Dv, D]
    const bool zero_k = name_ == "exact-uniform-k";
    for (std::int64_t c = 0; c < width; ++c) {
      const double o = form_.o.value.at(s.first_q, s.h, c);
      for (std::int64_t d = 0; d < dim; ++d) {
        double sum = 0;
        if (zero_k) {
          for (std::int64_t i = 0; i < s.sq; ++i) sum += d_o(s, i, c) * inputs_.q.at(s.first_q + i, s.h, d);
        } else {
          for (std::int64_t j = 0; j < s.sk; ++j) sum += (v(s, j, c) - o) * inputs_.k.at(s.first_k + j, s.head_kv, d);
        }
        kernel[static_cast<std::size_t>(c * dim + d)] = factor * sum;
      }
    }
    for (std::int64_t row = 0; row < (zero_k ? s.sk : s.sq); ++row) {
      for (std::int64_t d = 0; d < dim; ++d) {
        double sum = 0;
        for (std::int64_t c = 0; c < width; ++c) {
          const double left = zero_k ? v(s, row, c) - form_.o.value.at(s.first_q, s.h, c) : d_o(s, row, c);
          sum += left * kernel[static_cast<std::size_t>(c * dim + d)];
        }
        if (zero_k) {
          const double before = s.h % problem_.group() == 0 ? 0 : group_dk_.at(s.first_k + row, s.head_kv, d);
          if (group_dk_.empty()) group_dk_ = Values(problem_.total_k(), problem_.heads_kv, dim);
          group_dk_.at(s.first_k + row, s.head_kv, d) = before + sum;
          set(form_.dk, s.first_k + row, s.head_kv, d, before + sum, power_scale);
        } else {
          set(form_.dq, s.first_q + row, s.h, d, sum, power_scale);
        }
      }
    }
  }

  // One key per query.
  void copy_dv(const Slice& s) {
    for (std::int64_t j = 0; j < s.sk; ++j)
      for (std::int64_t c = 0; c < problem_.width_v(); ++c) add_dv(s, j, c, 0);
    for (std::int64_t i = 0; i < s.sq; ++i) {
      const auto [first, last] = ends(s, i);
      for (std::int64_t c = 0; first <= last && c < problem_.width_v(); ++c) add_dv(s, first, c, d_o(s, i, c));
    }
  }

  void retrieval_gradients(const Slice& s) {
    // `retrieve` noted one key for each row of this head that sees any.
    std::vector<std::int64_t> keys = std::move(retrieved_);
    retrieved_.clear();
    const bool all = std::find(keys.begin(), keys.end(), -1) == keys.end();
    all_clear_ &= all;
    zero(s, all);
    std::size_t next = 0;
    for (std::int64_t j = 0; j < s.sk; ++j)
      for (std::int64_t c = 0; c < problem_.width_v(); ++c) add_dv(s, j, c, 0);
    for (std::int64_t i = 0; i < s.sq; ++i) {
      const auto [first, last] = ends(s, i);
      if (first > last) continue;
      const std::int64_t key = keys[next++];
      for (std::int64_t c = 0; key >= 0 && c < problem_.width_v(); ++c) add_dv(s, key, c, d_o(s, i, c));
    }
  }

  // A 0 of the ladder is a sum of unequal parts, which a kernel that divides each part leaves a little off. A sum whose value needs more bits than the output type has may be rounded from either side of a tie by kernels that
  // divide in between: such an element keeps its bound.
  void round_to_output() {
    if (!all_clear_) std::fill(form_.dk.exact.begin(), form_.dk.exact.end(), std::uint8_t{0});
    if (!all_clear_) std::fill(form_.dv.exact.begin(), form_.dv.exact.end(), std::uint8_t{0});
    for (ClosedTensor* t : {&form_.o, &form_.dq, &form_.dk, &form_.dv}) {
      for (std::size_t n = 0; n < t->exact.size(); ++n) t->exact[n] &= round_to(out_, t->value.data[n]) == t->value.data[n];
    }
  }

  const Problem& problem_;
  const Inputs& inputs_;
  std::string_view name_;
  Dtype out_;
  ClosedForm form_;
  Values group_dk_;                      // [tokens_k, Hkv, D] sums over the heads so far
  std::vector<std::int64_t> retrieved_;  // of the head at hand
  bool all_clear_ = true;
};

std::int64_t replace(const ClosedTensor& closed, Values& exact, Values& bounds) {
  std::int64_t count = 0;
  for (std::size_t n = 0; n < closed.exact.size(); ++n) {
    if (closed.exact[n] == 0) continue;
    exact.data[n] = closed.value.data[n];
    bounds.data[n] = 0;
    ++count;
  }
  return count;
}

}  // namespace

ClosedForm closed_form(const Problem& problem, const Inputs& inputs) { return Builder(problem, inputs).build(); }

BitwiseClaims bitwise_claims(const NumericsProfile& profile) {
  const bool sums = profile.qk.u_norm <= 0x1p-20 && profile.pv.u_norm <= 0x1p-20 && profile.bwd.u_norm <= 0x1p-20 &&
                    profile.exp_error <= 0x1p-20 && profile.input_error == 0;
  return {sums, sums && !profile.p_normalised, sums && profile.p_bwd.u >= 0x1p-12};
}

std::int64_t apply_closed_form(const Problem& problem, const Inputs& inputs, const NumericsProfile& profile,
                               ExactWithBounds& truth) {
  const BitwiseClaims claims = bitwise_claims(profile);
  ClosedForm form = closed_form(problem, inputs);
  std::int64_t count = 0;
  const bool ladder = problem.fill.family == "exact-ladder" || problem.fill.family == "exact-staircase";
  // Powers of two other than 1 come from exp, and only P rounded to 16 bits has them exactly.
  const bool o = claims.o && (!ladder || profile.p.u >= 0x1p-12);
  if (o && !claims.o_any_count) {
    for (std::size_t n = 0; n < form.o.exact.size(); ++n) {
      const double keys = std::exp(form.lse[n / static_cast<std::size_t>(form.o.value.width)]);
      if (std::isfinite(keys) && keys > 0 && !power_of_two(std::llround(keys))) form.o.exact[n] = 0;
    }
  }
  if (o) count += replace(form.o, truth.exact.o, truth.bounds.o);
  for (std::size_t n = 0; n < form.lse.size(); ++n) {
    if (!std::isnan(form.lse[n])) truth.exact.lse[n] = form.lse[n];
  }
  const bool delta_exact = (profile.delta_from_stored_o && claims.o_any_count) || !form.odd_counts;
  if (problem.wants_backward() && claims.gradients && delta_exact) {
    count += replace(form.dq, truth.exact.dq, truth.bounds.dq) + replace(form.dk, truth.exact.dk, truth.bounds.dk) +
             replace(form.dv, truth.exact.dv, truth.bounds.dv);
  }
  return count;
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// Bounds of the gradients: dq and d_bias of a block, what it adds to its group, and dk and dv at the group's end.
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/oracle/bound_block.h"

namespace attest {
namespace {

constexpr double kSpread = 2.0;  // kappa

}  // namespace

template <typename Rule>
void BlockSweep<Rule>::backward_rows(const RowBlock& block, std::vector<RowState>& rows, GroupSums<Real>& sums) {
  for (std::int64_t r = 0; r < block.count; ++r) {
    if (rows[r].empty) {
      for (RealMatrix<Real>& weights : weight_) row_of(weights, r).setZero();
      continue;
    }
    const BackwardWeights<Real> weights = {row_of(weight_[0], r), row_of(weight_[1], r), row_of(weight_[2], r),
                                           row_of(weight_[3], r), row_of(weight_[4], r), row_of(weight_[5], r)};
    rule_.backward(pair_row(r), rows[r].facts, rows[r].errors, weights, sums.errors);
    // Products <do, v> that pass float32 or a dS that passes its type may make a kernel's gradients infinite.
    const double largest_dp = rows[r].facts.o2 * static_cast<double>(group_->v.norm2.maxCoeff()) * rules_.grad_unit;
    rows[r].errors.overflows |= !rules_.profile.wide && largest_dp > 1e38;
    if (problem_.d_bias) add_bias(block, r, rows[r]);
  }
  add_to_group(block, rows, sums);
  finish_dq(block, rows);
}

template <typename Rule>
void BlockSweep<Rule>::add_bias(const RowBlock& block, std::int64_t r, const RowState& state) {
  // The bound of d_bias holds the variance until the end, then lambda times its root; `common` is linear.
  Operand<double>& bound = out_.bounds.d_bias;
  for (std::int64_t j = keys_.first; j < keys_.last; ++j) {
    if (shown_(r, j - keys_.first) == 0) continue;
    double& element = bound.data[bound.index(block.head.b, block.head.h, block.i + r, j)];
    const double weight = static_cast<double>(weight_[4](r, j - keys_.first)) * rules_.grad_unit;
    if (!state.errors.trusted || state.errors.overflows) {
      element = std::numeric_limits<double>::infinity();
    } else if constexpr (Rule::kSquares) {
      const double common = static_cast<double>(weight_[5](r, j - keys_.first)) * rules_.grad_unit;
      const double deviation2 = weight * rules_.grad_unit;
      const double least =
          rules_.profile.exp_error * rules_.profile.exp_error + 4 * rules_.profile.u * rules_.profile.u;
      const double terms = static_cast<double>(rules_.bias_terms);
      // Each term's deviation, the float32 additions of up to `terms` of them, and the row's common part.
      element += rules_.lambda * std::sqrt(deviation2) +
                 rules_.lambda * rules_.profile.u * std::sqrt(terms * deviation2 / least) + common;
    } else {
      element += weight;
    }
  }
}

template <typename Rule>
void BlockSweep<Rule>::add_to_group(const RowBlock& block, const std::vector<RowState>& rows, GroupSums<Real>& sums) {
  const std::int64_t n = keys_.last - keys_.first, count = block.count;
  sums.dk.middleRows(keys_.first, n).noalias() += weight_[2].topLeftCorner(count, n).transpose() * q_.weight;
  sums.dv.middleRows(keys_.first, n).noalias() += weight_[3].topLeftCorner(count, n).transpose() * d_o_.weight;
  if (!rules_.common_d.empty()) {
    const double common = rules_.common_d[static_cast<std::size_t>(block.head.b * problem_.heads_q + block.head.h)];
    if (common > 0) {
      sums.common_dk.middleRows(keys_.first, n).noalias() +=
          Real(common) * (weight_[1].topLeftCorner(count, n).transpose() * q_.x);
    }
  }
  const Real smallest = static_cast<Real>(rules_.profile.p_bwd.subnormal / 2);
  for (std::int64_t r = 0; r < count; ++r) {
    if (rows[r].empty) continue;
    const RealRow<Real> dropped = row_of(p_, r) * row_of(keep_, r);
    sums.mass.segment(keys_.first, n) += dropped;
    sums.flushed.segment(keys_.first, n) += (dropped < smallest).select(dropped, Real(0));
    const bool trusted = rows[r].errors.trusted && !rows[r].errors.overflows;
    for (std::int64_t j = 0; j < n; ++j) {
      if (shown_(r, j) == 0) continue;
      sums.seen[keys_.first + j] = 1;
      sums.trusted[keys_.first + j] &= trusted;
    }
  }
}

template <typename Rule>
void BlockSweep<Rule>::finish_dq(const RowBlock& block, const std::vector<RowState>& rows) {
  const NumericsProfile& n = rules_.profile;
  const HeadSlice& head = block.head;
  const std::int64_t width = keys_.last - keys_.first, count = block.count;
  dq_sum_.noalias() = weight_[0].topLeftCorner(count, width) * group_->k.weight.middleRows(keys_.first, width);
  mean_sum_.noalias() = weight_[1].topLeftCorner(count, width) * group_->k.x.middleRows(keys_.first, width);
  const double unit = rules_.grad_unit * units_.k * std::abs(scores_.scale());
  for (std::int64_t r = 0; r < count; ++r) {
    if (rows[r].empty) continue;
    const RowErrors& errors = rows[r].errors;
    const std::int64_t token = head.first_q + block.i + r;
    out_.trust.gradients[token * problem_.heads_q + head.h] = errors.trusted && !errors.overflows;
    const double least =
        n.p_bwd.u * n.p_bwd.u + n.exp_error * n.exp_error + std::pow(errors.lse / rules_.lambda, 2) + n.u * n.u;
    for (std::int64_t c = 0; c < rules_.dim; ++c) {
      const double dq = std::abs(exact_.dq.at(token, head.h, c));
      const double mean = errors.d * std::abs(static_cast<double>(mean_sum_(r, c)));
      const double sum = static_cast<double>(dq_sum_(r, c));
      double bound = 3 * n.u * dq;
      if (Rule::kSquares) {
        bound += unit * (rules_.lambda * std::sqrt(sum) + mean) + errors.lse * dq +
                 n.bwd.gen(head.seq_k, rules_.lambda, unit * kSpread * std::sqrt(sum / least), dq,
                           2 * n.key_tiles(head.seq_k));
      } else {
        bound += unit * (sum + mean);
      }
      out_.bounds.dq.at(token, head.h, c) = last_rounding(bound, dq);
    }
  }
}

template <typename Rule>
void BlockSweep<Rule>::finish_group(GroupSums<Real>& sums) {
  const NumericsProfile& n = rules_.profile;
  const Group<Real>& group = *sums.group;
  const std::int64_t extra = 2 * n.key_tiles(group.seq_k);
  const double least = std::sqrt(sums.errors.least_weight);
  const auto bound_of = [&](double sum, double unit, double value, double common) {
    if (!Rule::kSquares) return unit * sum + 3 * n.u * value;
    const double deviation = unit * std::sqrt(sum);
    return rules_.lambda * deviation +
           n.bwd.gen(group.queries, rules_.lambda, kSpread * deviation / least, value, extra) +
           (3 * n.u + sums.errors.common + common) * value;
  };
  for (std::int64_t j = 0; j < group.seq_k; ++j) {
    const std::int64_t token = group.first_k + j;
    if (sums.seen[j] == 0) continue;  // bound 0
    out_.trust.keys[token * problem_.heads_kv + group.head_kv] = sums.trusted[j];
    for (std::int64_t c = 0; c < rules_.dim; ++c) {
      const double dk = exact_.dk.at(token, group.head_kv, c);
      const double unit = rules_.grad_unit * units_.q * std::abs(scores_.scale());
      const double bound = bound_of(static_cast<double>(sums.dk(j, c)), unit, std::abs(dk), 0) +
                           unit * std::abs(static_cast<double>(sums.common_dk(j, c)));
      const double limit = out_.bounds.dk.at(token, group.head_kv, c) = last_rounding(bound, dk);
      sums.covered[static_cast<std::size_t>(j)] |= sums.trusted[static_cast<std::size_t>(j)] != 0 && std::abs(dk) > 2 * limit;
    }
    const double flushed = sums.mass[j] > 0 ? static_cast<double>(sums.flushed[j] / sums.mass[j]) : 1;
    for (std::int64_t c = 0; c < rules_.dim_v; ++c) {
      const double dv = exact_.dv.at(token, group.head_kv, c);
      const double bound = bound_of(static_cast<double>(sums.dv(j, c)), units_.d_o, std::abs(dv), flushed);
      const double limit = out_.bounds.dv.at(token, group.head_kv, c) = last_rounding(bound, dv);
      sums.covered[static_cast<std::size_t>(j)] |= sums.trusted[static_cast<std::size_t>(j)] != 0 && std::abs(dv) > 2 * limit;
    }
  }
}

template void BlockSweep<GenRow<float>>::backward_rows(const RowBlock&, std::vector<RowState>&, GroupSums<float>&);
template void BlockSweep<GenRow<double>>::backward_rows(const RowBlock&, std::vector<RowState>&, GroupSums<double>&);
template void BlockSweep<DetRow>::backward_rows(const RowBlock&, std::vector<RowState>&, GroupSums<double>&);
template void BlockSweep<GenRow<float>>::finish_group(GroupSums<float>&);
template void BlockSweep<GenRow<double>>::finish_group(GroupSums<double>&);
template void BlockSweep<DetRow>::finish_group(GroupSums<double>&);

}  // namespace attest

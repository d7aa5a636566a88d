// SPDX-License-Identifier: Apache-2.0
// What a block knows of its rows before their bounds: products, scores, probabilities.
#include "reference/oracle/bound_block.h"

#include <algorithm>
#include <limits>
#include <span>

namespace attest {
namespace {

constexpr double kNegInf = -std::numeric_limits<double>::infinity();

}  // namespace

template <typename Rule>
PairRow<typename Rule::Real> BlockSweep<Rule>::pair_row(std::int64_t r) {
  const std::int64_t n = keys_.last - keys_.first;
  const auto norms = [&](const RealRow<Real>& all) { return ConstRealRowMap<Real>(all.data() + keys_.first, n); };
  return {row_of(x_, r),          row_of(s_, r),          row_of(p_, r),         row_of(shown_, r),
          row_of(slope_, r),      row_of(keep_, r),       row_of(dp_, r),        norms(group_->k.norm2),
          norms(group_->k.norm4), norms(group_->v.norm2), norms(group_->v.norm4)};
}

template <typename Rule>
void BlockSweep<Rule>::products(const RowBlock& block) {
  const HeadSlice& head = block.head;
  const std::int64_t n = keys_.last - keys_.first;
  if (x_.cols() < n) {
    for (RealMatrix<Real>* m : {&x_, &s_, &p_, &shown_, &slope_, &keep_, &dp_})
      m->setOnes(kBoundRows, (n + 15) / 16 * 16);
    for (RealMatrix<Real>& m : weight_) m.setZero(kBoundRows, (n + 15) / 16 * 16);
  }
  q_.load(rows_of(inputs_.q, head.h, head.first_q + block.i, block.count), units_.q, Rule::kSquares);
  x_.topLeftCorner(block.count, n).noalias() = q_.x * group_->k.x.middleRows(keys_.first, n).transpose();
  if (!rules_.backward) return;
  d_o_.load(rows_of(inputs_.d_o, head.h, head.first_q + block.i, block.count), units_.d_o, Rule::kSquares);
  dp_.topLeftCorner(block.count, n).noalias() = d_o_.x * group_->v.x.middleRows(keys_.first, n).transpose();
}

// Tiles of the kernel that raise its running maximum, walking forward or backward.
template <typename Rule>
std::int64_t BlockSweep<Rule>::rises(const PairRow<Real>& row) const {
  const std::int64_t tile = rules_.profile.key_tile;
  std::vector<Real> tops;
  for (std::int64_t j = keys_.first; j < keys_.last;) {
    const std::int64_t end = std::min(keys_.last, (j / tile + 1) * tile);
    Real top = -std::numeric_limits<Real>::infinity();
    for (; j < end; ++j) {
      if (row.shown[j - keys_.first] != 0) top = std::max(top, row.s[j - keys_.first]);
    }
    tops.push_back(top);
  }
  const auto count = [](auto begin, auto end) {
    std::int64_t rises = 0;
    for (Real top = *begin; ++begin != end;) {
      if (*begin > top) {
        top = *begin;
        ++rises;
      }
    }
    return rises;
  };
  return std::max(count(tops.begin(), tops.end()), count(tops.rbegin(), tops.rend()));
}

template <typename Rule>
typename BlockSweep<Rule>::RowState BlockSweep<Rule>::start_row(const RowBlock& block, std::int64_t r) {
  const HeadSlice& head = block.head;
  const std::int64_t token = head.first_q + block.i + r;
  RowState state = {};
  RowFacts& facts = state.facts;
  facts.lse = exact_.lse[token * problem_.heads_q + head.h];
  state.empty = facts.lse == kNegInf || keys_.last == keys_.first;
  PairRow<Real> row = pair_row(r);
  if (state.empty) {
    row.p.setZero();
    row.shown.setZero();
    return state;
  }
  const std::size_t n = static_cast<std::size_t>(keys_.last - keys_.first);
  row.s = row.x;
  scores_.finish_scaled<Real>(head.b, head.h, block.i + r, keys_.first, rules_.scale, {row.s.data(), n},
                              {row.slope.data(), n});
  if (scores_.has_dropout()) {
    factor_.resize(n);
    scores_.dropout_factors(head.b, head.h, block.i + r, keys_.first, factor_);
    row.keep = Eigen::Map<const Eigen::Array<double, 1, Eigen::Dynamic>>(factor_.data(), row.s.size()).cast<Real>();
  }
  row.shown = (row.s > -std::numeric_limits<Real>::infinity()).template cast<Real>();
  facts.top = static_cast<double>(row.s.maxCoeff(&facts.top_key));
  row.s = (row.shown > 0).select(row.s, Real(facts.top));
  row.p = row.shown * (row.s - Real(facts.lse)).exp();
  facts.rises = Rule::kSquares ? rises(row) : 0;
  facts.keys = head.seq_k;
  facts.queries = group_->queries;
  facts.q2 = static_cast<double>(q_.norm2[r]);
  facts.q4 = static_cast<double>(q_.norm4[r]);
  if (rules_.backward) {
    facts.o2 = static_cast<double>(d_o_.norm2[r]);
    facts.o4 = static_cast<double>(d_o_.norm4[r]);
    double d = 0;
    for (std::int64_t c = 0; c < rules_.dim_v; ++c)
      d += inputs_.d_o.at(token, head.h, c) * exact_.o.at(token, head.h, c);
    facts.d = d / rules_.grad_unit;
    facts.delta = facts.d;
    if (rules_.has_d_lse) facts.delta -= inputs_.d_lse[token * problem_.heads_q + head.h] / rules_.grad_unit;
  }
  state.errors = rule_.forward(
      row, facts, {row_of(weight_[0], r), row_of(weight_[1], r), row_of(weight_[2], r), row_of(weight_[3], r)});
  return state;
}

// A lost key lowers LSE by -ln(1 - p) > p: seen for certain where that is over twice the bound. (The other half may be the
// kernel's own error.)
template <typename Rule>
void BlockSweep<Rule>::cover(std::int64_t r, const RowState& state, GroupSums<Real>& sums) {
  const std::int64_t count = keys_.last - keys_.first;
  const Real least = problem_.wants_forward() && state.errors.trusted ? Real(2 * state.errors.lse) : Real(2);
  std::int64_t first = -1, last = -1;
  bool any = false;
  for (std::int64_t j = 0; j < count; ++j) {
    if (shown_(r, j) == 0) continue;
    const bool covered = p_(r, j) > least;
    any |= covered;
    sums.seen[static_cast<std::size_t>(keys_.first + j)] = 1;
    sums.covered[static_cast<std::size_t>(keys_.first + j)] |= covered;
    if (first < 0) first = j;
    last = j;
  }
  if (!problem_.wants_forward()) return;
  Coverage& coverage = sums.coverage;
  ++coverage.rows;
  coverage.uncovered_rows += !any;
  const auto count_edge = [&](std::int64_t edge, bool cut) {
    coverage.mask_edges += cut;
    coverage.uncovered_mask_edges += cut && !(p_(r, edge) > least);
  };
  count_edge(first, keys_.first + first > 0);
  count_edge(last, keys_.first + last < group_->seq_k - 1);
}

template <typename Rule>
void BlockSweep<Rule>::run_block(const RowBlock& block, GroupSums<Real>& sums) {
  group_ = sums.group;
  keys_ = scores_.keys_of(block.head.b, block.i, block.count);
  if (keys_.first >= keys_.last) return;
  products(block);
  std::vector<RowState> rows;
  for (std::int64_t r = 0; r < block.count; ++r) {
    rows.push_back(start_row(block, r));
    if (!rows.back().empty) continue;
    for (RealMatrix<Real>& weights : weight_) row_of(weights, r).setZero();
  }
  finish_forward(block, rows);
  for (std::int64_t r = 0; r < block.count; ++r) {
    if (!rows[static_cast<std::size_t>(r)].empty) cover(r, rows[static_cast<std::size_t>(r)], sums);
  }
  if (rules_.backward) backward_rows(block, rows, sums);
}

template class BlockSweep<GenRow<float>>;
template class BlockSweep<GenRow<double>>;
template class BlockSweep<DetRow>;

}  // namespace attest

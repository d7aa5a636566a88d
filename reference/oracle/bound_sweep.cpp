// SPDX-License-Identifier: Apache-2.0
#include "reference/oracle/bound_sweep.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <type_traits>

#include "reference/oracle/bound_operands.h"
#include "reference/oracle/sweep.h"

namespace attest {
namespace {

constexpr double kNegInf = -std::numeric_limits<double>::infinity();
constexpr double kSpread = 2.0;  // kappa
constexpr std::int64_t kBoundRows = 32;
constexpr std::int64_t kMostSpans = 4;

/// Units of the tensors, and what follows from them.
struct Units {
  double q, k, v, d_o;
};

/// Keys and values of one key/value head of one sequence.
template <typename Real>
struct Group {
  std::int64_t b;
  std::int64_t head_kv;
  std::int64_t first_k;
  std::int64_t seq_k;
  std::int64_t queries;
  BoundOperand<Real> k, v;
  Eigen::ArrayXd v_low, v_high;  // [Dv] smallest and largest value of each column
};

/// Sums over some rows of a group, for its dk and dv.
template <typename Real>
struct GroupSums {
  const Group<Real>* group;
  std::vector<RowBlock> blocks;
  RealMatrix<Real> dk, dv;            // [Sk, D], [Sk, Dv]
  RealRow<Real> mass, flushed;        // [Sk] sum of P, and of the P that may be flushed
  std::vector<std::uint8_t> trusted;  // [Sk]
  std::vector<std::uint8_t> seen;     // [Sk]
  GroupErrors errors;
};

template <typename Rule>
class Sweep {
  using Real = typename Rule::Real;

 public:
  Sweep(const Problem& problem, const Inputs& inputs, const Scores& scores, const Exact& exact, const RowRules& rules,
        const Units& units, SweptBounds& out)
      : problem_(problem), inputs_(inputs), scores_(scores), exact_(exact), rules_(rules), units_(units), rule_(rules),
        out_(out) {}

  void run_block(const RowBlock& block, GroupSums<Real>& sums);
  void finish_group(const GroupSums<Real>& sums);

 private:
  struct RowState {
    RowFacts facts;
    RowErrors errors;
    bool empty;
  };

  PairRow<Real> pair_row(std::int64_t r);
  RealRowMap<Real> row_of(RealMatrix<Real>& matrix, std::int64_t r) {
    return {matrix.row(r).data(), keys_.last - keys_.first};
  }
  void products(const RowBlock& block);
  RowState start_row(const RowBlock& block, std::int64_t r);
  void finish_forward(const RowBlock& block, std::vector<RowState>& rows);
  void finish_row(const RowBlock& block, std::int64_t r, RowState& state);
  double o_error(std::int64_t r, std::int64_t c, const RowState& state, double o, double& accumulation) const;
  void backward_rows(const RowBlock& block, std::vector<RowState>& rows, GroupSums<Real>& sums);
  void add_to_group(const RowBlock& block, const std::vector<RowState>& rows, GroupSums<Real>& sums);
  void finish_dq(const RowBlock& block, const std::vector<RowState>& rows);
  void add_bias(const RowBlock& block, std::int64_t r, const RowState& state);
  std::int64_t rises(const PairRow<Real>& row) const;
  double last_rounding(double error, double value) const {
    const StorageRounding& out = rules_.profile.out;
    return error * (1 + out.u) + out.u * std::abs(value) + out.subnormal / 2;
  }

  const Problem& problem_;
  const Inputs& inputs_;
  const Scores& scores_;
  const Exact& exact_;
  const RowRules& rules_;
  const Units& units_;
  Rule rule_;
  SweptBounds& out_;

  const Group<Real>* group_ = nullptr;
  KeyRange keys_ = {0, 0};
  BoundOperand<Real> q_, d_o_;                                  // of the block
  RealMatrix<Real> x_, s_, p_, shown_, slope_, keep_, dp_;      // [kBoundRows, keys]
  RealMatrix<Real> weight_[6];                                  // [kBoundRows, keys]
  RealMatrix<Real> m2_, r2_, eta2_, eta1_, dq_sum_, mean_sum_;  // [kBoundRows, D or Dv]
  std::vector<double> factor_;
};

template <typename Rule>
PairRow<typename Rule::Real> Sweep<Rule>::pair_row(std::int64_t r) {
  const std::int64_t n = keys_.last - keys_.first;
  const auto norms = [&](const RealRow<Real>& all) { return ConstRealRowMap<Real>(all.data() + keys_.first, n); };
  return {row_of(x_, r),          row_of(s_, r),          row_of(p_, r),         row_of(shown_, r),
          row_of(slope_, r),      row_of(keep_, r),       row_of(dp_, r),        norms(group_->k.norm2),
          norms(group_->k.norm4), norms(group_->v.norm2), norms(group_->v.norm4)};
}

template <typename Rule>
void Sweep<Rule>::products(const RowBlock& block) {
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
std::int64_t Sweep<Rule>::rises(const PairRow<Real>& row) const {
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
typename Sweep<Rule>::RowState Sweep<Rule>::start_row(const RowBlock& block, std::int64_t r) {
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

template <typename Rule>
void Sweep<Rule>::finish_forward(const RowBlock& block, std::vector<RowState>& rows) {
  const std::int64_t n = keys_.last - keys_.first, count = block.count;
  const auto weights = [&](int index) { return weight_[index].topLeftCorner(count, n); };
  const auto v = group_->v.x.middleRows(keys_.first, n);
  RealMatrix<Real> squares = group_->v.weight.middleRows(keys_.first, n);
  if (!Rule::kSquares) squares = squares.cwiseAbs2();
  m2_.noalias() = weights(0) * squares;
  if constexpr (Rule::kSquares) {
    r2_.noalias() = weights(1) * squares;
    if (rule_.exact_shared()) {
      eta2_.noalias() = weights(2) * squares;
      eta1_.noalias() = weights(3) * v;
    }
  }
  for (std::int64_t r = 0; r < count; ++r) finish_row(block, r, rows[r]);
}

// Error of o before it is rounded to its type, in its own scale; `accumulation` gets the part of the product's sum.
template <typename Rule>
double Sweep<Rule>::o_error(std::int64_t r, std::int64_t c, const RowState& state, double o,
                            double& accumulation) const {
  const NumericsProfile& n = rules_.profile;
  const RowErrors& errors = state.errors;
  const double unit2 = units_.v * units_.v;
  const double m2 = static_cast<double>(m2_(r, c)) * unit2;
  // Float's own error in M2 - o^2 must not make the variance too small.
  const double slack = sizeof(Real) == 4 ? 4e-6 * m2 : 0;
  const double variance = std::max(m2 - o * o, 0.0) + slack;
  const double direct = errors.flushed + errors.row_sum + 4 * n.u;
  if constexpr (Rule::kSquares) {
    double r2 = static_cast<double>(r2_(r, c)) * unit2;
    const double p2v2 = r2;
    if (n.p.u == 0) r2 *= n.input_error * n.input_error;  // the weights were p^2
    if (n.l_from_rounded) r2 = std::pow(std::sqrt(r2) + std::abs(o) * std::sqrt(errors.rounded), 2);
    double h = errors.shared * variance;
    if (rule_.exact_shared()) {
      const double exact = static_cast<double>(eta2_(r, c)) * unit2 -
                           2 * o * static_cast<double>(eta1_(r, c)) * units_.v + o * o * errors.shared_sum;
      h = std::min(h, std::max(exact, 0.0));
    }
    accumulation = rule_.accumulation(state.facts, o, r2, p2v2);
    return rules_.lambda * std::sqrt(r2 + h) + std::abs(o) * (direct + rules_.common_p) + accumulation;
  } else {
    const double keep = scores_.has_dropout() ? 1 / (1 - problem_.effective_dropout()) : 1;
    const double low = group_->v_low[c], high = group_->v_high[c];
    const double largest = std::max(std::abs(low), std::abs(high)) * keep;
    const double hull = scores_.has_dropout() ? 2 * largest : high - low;
    const double linear = errors.shared == 0 || variance == 0 ? 0 : errors.shared * std::sqrt(variance);
    const double shared = std::min(linear, hull);
    const double magnitude = std::sqrt(m2) + std::min(linear, largest);
    accumulation = 0;
    return shared +
           magnitude * (n.p.u * (n.l_from_rounded ? 2 : 1) + n.input_error +
                        n.pv.det(state.facts.keys, 2 * n.key_tiles(state.facts.keys))) +
           std::min(errors.flushed * largest, magnitude) + (std::abs(o) + shared) * (errors.row_sum + 4 * n.u);
  }
}

template <typename Rule>
void Sweep<Rule>::finish_row(const RowBlock& block, std::int64_t r, RowState& state) {
  const HeadSlice& head = block.head;
  const NumericsProfile& n = rules_.profile;
  const std::int64_t token = head.first_q + block.i + r, place = token * problem_.heads_q + head.h;
  if (state.empty) return;  // bounds stay 0
  out_.bounds.lse[place] = state.errors.lse;
  out_.trust.rows[place] = state.errors.trusted;
  double d_variance = 0, d_products = 0, d_linear = 0, d_sizes = 0;
  for (std::int64_t c = 0; c < rules_.dim_v; ++c) {
    const double o = exact_.o.at(token, head.h, c);
    double accumulation = 0;
    const double bound = last_rounding(o_error(r, c, state, o, accumulation), o);
    out_.bounds.o.at(token, head.h, c) = bound;
    if (!rules_.backward) continue;
    const double g = inputs_.d_o.at(token, head.h, c) / rules_.grad_unit;
    const double stored = n.delta_from_stored_o ? 1 : 0;
    d_variance +=
        g * g *
        (accumulation * accumulation + stored * (n.out.u * o * n.out.u * o + n.out.subnormal * n.out.subnormal / 4));
    d_products += g * o * g * o;
    d_linear += std::abs(g) * bound;
    d_sizes += std::abs(g) * (std::abs(o) + bound);
  }
  if (!rules_.backward) return;
  const double width = static_cast<double>(rules_.dim_v), d = std::abs(state.facts.d);
  if constexpr (Rule::kSquares) {
    state.errors.d = rules_.lambda * std::sqrt(state.errors.d_variance + d_variance) +
                     d * (state.errors.flushed + state.errors.row_sum + 4 * n.u + rules_.common_p) +
                     rules_.lambda * n.u * std::sqrt(width) * (std::sqrt(d_products) + d);
  } else {
    state.errors.d = d_linear + width * n.u * d_sizes;
  }
  if (rules_.has_d_lse) state.errors.d += n.u * std::abs(state.facts.delta);
}

template <typename Rule>
void Sweep<Rule>::backward_rows(const RowBlock& block, std::vector<RowState>& rows, GroupSums<Real>& sums) {
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
void Sweep<Rule>::add_bias(const RowBlock& block, std::int64_t r, const RowState& state) {
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
void Sweep<Rule>::add_to_group(const RowBlock& block, const std::vector<RowState>& rows, GroupSums<Real>& sums) {
  const std::int64_t n = keys_.last - keys_.first, count = block.count;
  sums.dk.middleRows(keys_.first, n).noalias() += weight_[2].topLeftCorner(count, n).transpose() * q_.weight;
  sums.dv.middleRows(keys_.first, n).noalias() += weight_[3].topLeftCorner(count, n).transpose() * d_o_.weight;
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
void Sweep<Rule>::finish_dq(const RowBlock& block, const std::vector<RowState>& rows) {
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
void Sweep<Rule>::run_block(const RowBlock& block, GroupSums<Real>& sums) {
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
  if (rules_.backward) backward_rows(block, rows, sums);
}

template <typename Rule>
void Sweep<Rule>::finish_group(const GroupSums<Real>& sums) {
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
      const double bound = bound_of(static_cast<double>(sums.dk(j, c)), unit, std::abs(dk), 0);
      out_.bounds.dk.at(token, group.head_kv, c) = last_rounding(bound, dk);
    }
    const double flushed = sums.mass[j] > 0 ? static_cast<double>(sums.flushed[j] / sums.mass[j]) : 1;
    for (std::int64_t c = 0; c < rules_.dim_v; ++c) {
      const double dv = exact_.dv.at(token, group.head_kv, c);
      const double bound = bound_of(static_cast<double>(sums.dv(j, c)), units_.d_o, std::abs(dv), flushed);
      out_.bounds.dv.at(token, group.head_kv, c) = last_rounding(bound, dv);
    }
  }
}

template <typename Real>
std::vector<Group<Real>> make_groups(const Problem& problem, const Inputs& inputs, const Units& units, bool squares) {
  std::vector<Group<Real>> groups;
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    for (std::int64_t head_kv = 0; head_kv < problem.heads_kv; ++head_kv) {
      const HeadSlice head = head_slice(problem, b, head_kv * problem.group());
      Group<Real> group = {b, head_kv, head.first_k, head.seq_k, head.seq_q * problem.group(), {}, {}, {}, {}};
      if (head.seq_k > 0) {
        const ConstRows v = rows_of(inputs.v, head_kv, head.first_k, head.seq_k);
        group.k.load(rows_of(inputs.k, head_kv, head.first_k, head.seq_k), units.k, squares);
        group.v.load(v, units.v, squares);
        group.v_low = v.colwise().minCoeff().transpose().array();
        group.v_high = v.colwise().maxCoeff().transpose().array();
      }
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

std::vector<RowBlock> small_blocks(const Problem& problem, std::int64_t b, std::int64_t head_kv) {
  std::vector<RowBlock> blocks;
  for (std::int64_t g = 0; g < problem.group(); ++g) {
    const HeadSlice head = head_slice(problem, b, head_kv * problem.group() + g);
    for (std::int64_t i = 0; i < head.seq_q; i += kBoundRows)
      blocks.push_back({head, i, std::min(kBoundRows, head.seq_q - i)});
  }
  return blocks;
}

template <typename Real>
std::vector<GroupSums<Real>> make_sums(const Problem& problem, const std::vector<Group<Real>>& groups) {
  const std::int64_t wanted =
      std::clamp<std::int64_t>(kMostSpans / static_cast<std::int64_t>(groups.size()), 1, kMostSpans);
  std::vector<GroupSums<Real>> all;
  for (const Group<Real>& group : groups) {
    const std::vector<RowBlock> blocks = small_blocks(problem, group.b, group.head_kv);
    const std::int64_t count = static_cast<std::int64_t>(blocks.size());
    const std::int64_t pieces = std::clamp<std::int64_t>(count / 4, 1, wanted);
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      GroupSums<Real> sums = {};
      sums.group = &group;
      for (std::int64_t n = piece; n < count; n += pieces) sums.blocks.push_back(blocks[n]);
      if (problem.wants_backward()) {
        sums.dk.setZero(group.seq_k, problem.dim);
        sums.dv.setZero(group.seq_k, problem.width_v());
        sums.mass.setZero(group.seq_k);
        sums.flushed.setZero(group.seq_k);
        sums.trusted.assign(static_cast<std::size_t>(group.seq_k), 1);
        sums.seen.assign(static_cast<std::size_t>(group.seq_k), 0);
      }
      all.push_back(std::move(sums));
    }
  }
  return all;
}

// The sums of a group's later pieces join its first one.
template <typename Real>
void join(std::vector<GroupSums<Real>>& all) {
  for (std::size_t n = all.size(); n-- > 1;) {
    if (all[n].group != all[n - 1].group) continue;
    GroupSums<Real>&to = all[n - 1], &from = all[n];
    to.dk += from.dk;
    to.dv += from.dv;
    to.mass += from.mass;
    to.flushed += from.flushed;
    for (std::size_t j = 0; j < to.trusted.size(); ++j) {
      to.trusted[j] &= from.trusted[j];
      to.seen[j] |= from.seen[j];
    }
    to.errors.least_weight = std::min(to.errors.least_weight, from.errors.least_weight);
    to.errors.common = std::max(to.errors.common, from.errors.common);
    from.group = nullptr;
  }
}

SweptBounds make_bounds(const Problem& problem, const Exact& exact) {
  SweptBounds out;
  const auto zeros = [](const Values& like) { return Values(like.tokens, like.heads, like.width); };
  out.bounds.o = zeros(exact.o);
  out.bounds.lse.assign(exact.lse.size(), 0);
  out.bounds.dq = zeros(exact.dq);
  out.bounds.dk = zeros(exact.dk);
  out.bounds.dv = zeros(exact.dv);
  out.bounds.d_bias = exact.d_bias;
  std::fill(out.bounds.d_bias.data.begin(), out.bounds.d_bias.data.end(), 0.0);
  out.trust.rows.assign(exact.lse.size(), 1);
  out.trust.gradients.assign(exact.lse.size(), 1);
  out.trust.keys.assign(static_cast<std::size_t>(problem.total_k() * problem.heads_kv), 1);
  return out;
}

std::int64_t bias_terms(const Problem& problem, const Operand<double>& d_bias) {
  const auto summed = [](std::int64_t own, std::int64_t all) { return own == 1 ? all : 1; };
  return summed(d_bias.extent_b, problem.batch()) * summed(d_bias.extent_h, problem.heads_q) *
         summed(d_bias.extent_q, problem.max_q()) * summed(d_bias.extent_k, problem.max_k());
}

}  // namespace

template <typename Rule>
SweptBounds sweep_bounds(const Problem& problem, const Inputs& inputs, const Scores& scores, const Exact& exact,
                         const NumericsProfile& profile, double lambda, bool captured) {
  using Real = typename Rule::Real;
  const bool scaled = std::is_same_v<Real, float>;
  const Units units =
      scaled ? Units{unit_of(inputs.q), unit_of(inputs.k), unit_of(inputs.v), unit_of(inputs.d_o)} : Units{1, 1, 1, 1};
  const bool backward = problem.wants_backward();
  const double bias_roundings = (inputs.bias.empty() ? 0 : 2) + (problem.alibi ? 3 : 0);
  const RowRules rules = {profile,
                          lambda,
                          captured ? profile.p.u : 0,
                          scores.scale() * units.q * units.k,
                          problem.effective_softcap(),
                          units.v * units.d_o,
                          bias_roundings,
                          backward,
                          backward && !inputs.d_lse.empty(),
                          problem.dim,
                          problem.width_v(),
                          exact.d_bias.empty() ? 1 : bias_terms(problem, exact.d_bias)};
  SweptBounds out = make_bounds(problem, exact);
  const std::vector<Group<Real>> groups = make_groups<Real>(problem, inputs, units, Rule::kSquares);
  std::vector<GroupSums<Real>> all = make_sums(problem, groups);
  const std::int64_t count = static_cast<std::int64_t>(all.size());
#pragma omp parallel if (exact.d_bias.empty() && flops(problem, 2) > kThreadedFlops)
  {
    Sweep<Rule> sweep(problem, inputs, scores, exact, rules, units, out);
#pragma omp for schedule(dynamic)
    for (std::int64_t n = 0; n < count; ++n) {
      for (const RowBlock& block : all[n].blocks) sweep.run_block(block, all[n]);
    }
  }
  if (!backward) return out;
  join(all);
  Sweep<Rule> sweep(problem, inputs, scores, exact, rules, units, out);
  for (const GroupSums<Real>& sums : all) {
    if (sums.group != nullptr) sweep.finish_group(sums);
  }
  for (std::size_t n = 0; n < out.bounds.d_bias.data.size(); ++n) {
    double& bound = out.bounds.d_bias.data[n];
    const double u = profile.u;
    if (bound > 0) bound = bound * (1 + u) + u * std::abs(exact.d_bias.data[n]) + (profile.wide ? 0 : 0x1p-126);
  }
  return out;
}

template SweptBounds sweep_bounds<GenRow<float>>(const Problem&, const Inputs&, const Scores&, const Exact&,
                                                 const NumericsProfile&, double, bool);
template SweptBounds sweep_bounds<GenRow<double>>(const Problem&, const Inputs&, const Scores&, const Exact&,
                                                  const NumericsProfile&, double, bool);
template SweptBounds sweep_bounds<DetRow>(const Problem&, const Inputs&, const Scores&, const Exact&,
                                          const NumericsProfile&, double, bool);

}  // namespace attest

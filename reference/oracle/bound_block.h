// SPDX-License-Identifier: Apache-2.0
// The bounds of one block of queries: its products, then its rows one by one by Rule (GenRow or DetRow), then the products
// of what the rows gave, and the last roundings. One object per thread, for its scratch.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/oracle/bound_group.h"
#include "reference/oracle/bound_sweep.h"

namespace attest {

template <typename Rule>
class BlockSweep {
 public:
  using Real = typename Rule::Real;

  BlockSweep(const Problem& problem, const Inputs& inputs, const Scores& scores, const Exact& exact, const RowRules& rules,
             const Units& units, SweptBounds& out)
      : problem_(problem), inputs_(inputs), scores_(scores), exact_(exact), rules_(rules), units_(units), rule_(rules),
        out_(out) {}

  void run_block(const RowBlock& block, GroupSums<Real>& sums);
  void finish_group(GroupSums<Real>& sums);

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
  void cover(std::int64_t r, const RowState& state, GroupSums<Real>& sums);
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
  std::vector<double> factor_;                                  // [keys] Z / (1 - p)
};

}  // namespace attest

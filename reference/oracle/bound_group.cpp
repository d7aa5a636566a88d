// SPDX-License-Identifier: Apache-2.0
#include "reference/oracle/bound_group.h"

#include <algorithm>

namespace attest {
namespace {

constexpr std::int64_t kMostPieces = 4;

std::vector<RowBlock> small_blocks(const Problem& problem, std::int64_t b, std::int64_t head_kv) {
  std::vector<RowBlock> blocks;
  for (std::int64_t g = 0; g < problem.group(); ++g) {
    const HeadSlice head = head_slice(problem, b, head_kv * problem.group() + g);
    for (std::int64_t i = 0; i < head.seq_q; i += kBoundRows)
      blocks.push_back({head, i, std::min(kBoundRows, head.seq_q - i)});
  }
  return blocks;
}

}  // namespace

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

template <typename Real>
std::vector<GroupSums<Real>> make_sums(const Problem& problem, const std::vector<Group<Real>>& groups) {
  const std::int64_t wanted =
      std::clamp<std::int64_t>(kMostPieces / static_cast<std::int64_t>(groups.size()), 1, kMostPieces);
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
        sums.common_dk.setZero(group.seq_k, problem.dim);
        sums.mass.setZero(group.seq_k);
        sums.flushed.setZero(group.seq_k);
        sums.trusted.assign(static_cast<std::size_t>(group.seq_k), 1);
      }
      sums.seen.assign(static_cast<std::size_t>(group.seq_k), 0);
      sums.covered.assign(static_cast<std::size_t>(group.seq_k), 0);
      all.push_back(std::move(sums));
    }
  }
  return all;
}

template <typename Real>
void join(std::vector<GroupSums<Real>>& all) {
  for (std::size_t n = all.size(); n-- > 1;) {
    if (all[n].group != all[n - 1].group) continue;
    GroupSums<Real>&to = all[n - 1], &from = all[n];
    to.coverage.add(from.coverage);
    for (std::size_t j = 0; j < to.seen.size(); ++j) {
      to.seen[j] |= from.seen[j];
      to.covered[j] |= from.covered[j];
    }
    if (to.dk.rows() > 0) {
      to.dk += from.dk;
      to.dv += from.dv;
      to.common_dk += from.common_dk;
      to.mass += from.mass;
      to.flushed += from.flushed;
    }
    for (std::size_t j = 0; j < to.trusted.size(); ++j) to.trusted[j] &= from.trusted[j];
    to.errors.least_weight = std::min(to.errors.least_weight, from.errors.least_weight);
    to.errors.common = std::max(to.errors.common, from.errors.common);
    from.group = nullptr;
  }
}

template std::vector<Group<float>> make_groups(const Problem&, const Inputs&, const Units&, bool);
template std::vector<GroupSums<float>> make_sums(const Problem&, const std::vector<Group<float>>&);
template void join(std::vector<GroupSums<float>>&);

template std::vector<Group<double>> make_groups(const Problem&, const Inputs&, const Units&, bool);
template std::vector<GroupSums<double>> make_sums(const Problem&, const std::vector<Group<double>>&);
template void join(std::vector<GroupSums<double>>&);

}  // namespace attest

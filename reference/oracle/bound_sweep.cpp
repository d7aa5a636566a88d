// SPDX-License-Identifier: Apache-2.0
#include "reference/oracle/bound_sweep.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "reference/oracle/bound_block.h"

namespace attest {
namespace {

constexpr std::size_t kEdgeTile = 64;
constexpr double kAlike = 16;  // rows whose o differ by fewer halves of a spacing round alike

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

void count_keys(const std::vector<std::uint8_t>& seen, const std::vector<std::uint8_t>& covered, Coverage& coverage) {
  for (std::size_t j = 0; j < seen.size(); ++j) {
    if (seen[j] == 0) continue;
    const bool edge = j % kEdgeTile == 0 || j % kEdgeTile == kEdgeTile - 1;
    ++coverage.keys;
    coverage.tile_edges += edge;
    if (covered[j] != 0) continue;
    ++coverage.uncovered_keys;
    coverage.uncovered_tile_edges += edge;
  }
}

// Where the rows of a head have nearly the same o, as with values of one sign, its roundings are the same too, and so is
// their part in D as far as do has a mean over the rows. The mean of P's roundings comes in by the mean of D. One number for
// each head.
std::vector<double> common_error_of_d(const Problem& problem, const Inputs& inputs, const Exact& exact,
                                      const NumericsProfile& profile, double lambda, CommonErrors common,
                                      double unit) {
  std::vector<double> errors;  // [B, Hq]
  const std::int64_t width = problem.width_v();
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    for (std::int64_t h = 0; h < problem.heads_q; ++h) {
      const HeadSlice head = head_slice(problem, b, h);
      Eigen::ArrayXd sum = Eigen::ArrayXd::Zero(width), squares = sum, sum_d_o = sum;  // [Dv]
      double rows = 0, sum_d = 0, squares_d = 0;
      for (std::int64_t token = head.first_q; token < head.first_q + head.seq_q; ++token) {
        if (std::isinf(exact.lse[static_cast<std::size_t>(token * problem.heads_q + h)])) continue;
        const Eigen::Map<const Eigen::ArrayXd> o(exact.o.row(token, h).data(), width);
        sum += o;
        squares += o.square();
        const Eigen::Map<const Eigen::ArrayXd> d_o(inputs.d_o.row(token, h).data(), width);
        sum_d_o += d_o;
        const double d = (d_o * o).sum();
        sum_d += d;
        squares_d += d * d;
        ++rows;
      }
      double variance = 0;
      for (std::int64_t c = 0; c < width && rows > 0; ++c) {
        const double mean = sum[c] / rows, step = profile.out.u * std::abs(mean);
        const double deviation = std::sqrt(std::max(squares[c] / rows - mean * mean, 0.0));
        if (profile.delta_from_stored_o && deviation < kAlike * step) variance += std::pow(step * sum_d_o[c] / rows / unit, 2);
      }
      // A mean within four deviations of 0 is none: the errors of the rows have either sign.
      const double mean_d = std::abs(sum_d) > 4 * std::sqrt(squares_d) ? std::abs(sum_d) / rows : 0;
      errors.push_back(lambda * std::sqrt(variance) + common.head * mean_d / unit);
    }
  }
  return errors;
}

}  // namespace

void Coverage::add(const Coverage& other) {
  keys += other.keys;
  uncovered_keys += other.uncovered_keys;
  tile_edges += other.tile_edges;
  uncovered_tile_edges += other.uncovered_tile_edges;
  mask_edges += other.mask_edges;
  uncovered_mask_edges += other.uncovered_mask_edges;
  rows += other.rows;
  uncovered_rows += other.uncovered_rows;
}

template <typename Rule>
SweptBounds sweep_bounds(const Problem& problem, const Inputs& inputs, const Scores& scores, const Exact& exact,
                         const NumericsProfile& profile, double lambda, CommonErrors common) {
  using Real = typename Rule::Real;
  const bool scaled = std::is_same_v<Real, float>;
  const Units units =
      scaled ? Units{unit_of(inputs.q), unit_of(inputs.k), unit_of(inputs.v), unit_of(inputs.d_o)} : Units{1, 1, 1, 1};
  const bool backward = problem.wants_backward();
  const double bias_roundings = (inputs.bias.empty() ? 0 : 2) + (problem.alibi ? 3 : 0);
  std::vector<double> common_d;
  if (Rule::kSquares && backward) {
    common_d = common_error_of_d(problem, inputs, exact, profile, lambda, common, units.v * units.d_o);
  }
  const RowRules rules = {profile,
                          lambda,
                          common.row,
                          scores.scale() * units.q * units.k,
                          problem.effective_softcap(),
                          units.v * units.d_o,
                          bias_roundings,
                          backward,
                          backward && !inputs.d_lse.empty(),
                          problem.dim,
                          problem.width_v(),
                          exact.d_bias.empty() ? 1 : bias_terms(problem, exact.d_bias),
                          common_d};
  SweptBounds out = make_bounds(problem, exact);
  const std::vector<Group<Real>> groups = make_groups<Real>(problem, inputs, units, Rule::kSquares);
  std::vector<GroupSums<Real>> all = make_sums(problem, groups);
  const std::int64_t count = static_cast<std::int64_t>(all.size());
#pragma omp parallel if (exact.d_bias.empty() && flops(problem, 2) > kThreadedFlops)
  {
    BlockSweep<Rule> sweep(problem, inputs, scores, exact, rules, units, out);
#pragma omp for schedule(dynamic)
    for (std::int64_t n = 0; n < count; ++n) {
      for (const RowBlock& block : all[n].blocks) sweep.run_block(block, all[n]);
    }
  }
  join(all);
  BlockSweep<Rule> sweep(problem, inputs, scores, exact, rules, units, out);
  for (GroupSums<Real>& sums : all) {
    if (sums.group == nullptr) continue;
    if (backward) sweep.finish_group(sums);
    count_keys(sums.seen, sums.covered, sums.coverage);
    out.bounds.coverage.add(sums.coverage);
  }
  if (!backward) return out;
  for (std::size_t n = 0; n < out.bounds.d_bias.data.size(); ++n) {
    double& bound = out.bounds.d_bias.data[n];
    const double u = profile.u;
    if (bound > 0) bound = bound * (1 + u) + u * std::abs(exact.d_bias.data[n]) + (profile.wide ? 0 : 0x1p-126);
  }
  return out;
}

template SweptBounds sweep_bounds<GenRow<float>>(const Problem&, const Inputs&, const Scores&, const Exact&,
                                                 const NumericsProfile&, double, CommonErrors);
template SweptBounds sweep_bounds<GenRow<double>>(const Problem&, const Inputs&, const Scores&, const Exact&,
                                                  const NumericsProfile&, double, CommonErrors);
template SweptBounds sweep_bounds<DetRow>(const Problem&, const Inputs&, const Scores&, const Exact&,
                                          const NumericsProfile&, double, CommonErrors);

}  // namespace attest
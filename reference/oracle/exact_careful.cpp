// SPDX-License-Identifier: Apache-2.0
// The oracle for inputs that are not finite, or so large that a product could overflow. A matrix product would carry
// 0 * NaN from a hidden key into a row; here hidden pairs are skipped.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "reference/oracle/exponential.h"
#include "reference/oracle/matrix_view.h"
#include "reference/oracle/sweep.h"

namespace attest {
namespace {

constexpr double kNegInf = -std::numeric_limits<double>::infinity();

double dot(std::span<const double> x, std::span<const double> y) {
  double sum = 0;
  for (std::size_t c = 0; c < x.size(); ++c) sum += x[c] * y[c];
  return sum;
}

void add_scaled(double factor, std::span<const double> x, std::span<double> y) {
  for (std::size_t c = 0; c < x.size(); ++c) y[c] += factor * x[c];
}

/// One row of queries: its visible keys with their probabilities.
struct Row {
  std::vector<std::int64_t> keys;
  std::vector<double> p;
  std::vector<double> slope;
  std::vector<double> factor;
  double lse = kNegInf;
};

Row softmax_row(const HeadSlice& head, std::int64_t i, const Inputs& inputs, const Scores& scores) {
  const std::size_t seq_k = static_cast<std::size_t>(head.seq_k);
  std::vector<double> s(seq_k), slope(seq_k, 1), factor(seq_k, 1);
  for (std::int64_t j = 0; j < head.seq_k; ++j) {
    s[j] = dot(inputs.q.row(head.first_q + i, head.h), inputs.k.row(head.first_k + j, head.head_kv));
  }
  scores.finish(head.b, head.h, i, 0, s, slope);
  if (scores.has_dropout()) scores.dropout_factors(head.b, head.h, i, 0, factor);

  Row row;
  double top = kNegInf;
  for (std::int64_t j = 0; j < head.seq_k; ++j) {
    if (s[j] == kNegInf) continue;
    row.keys.push_back(j);
    row.p.push_back(s[j]);
    row.slope.push_back(slope[j]);
    row.factor.push_back(factor[j]);
    if (s[j] > top || std::isnan(s[j])) top = s[j];
  }
  if (row.keys.empty()) return row;
  // A score of +inf or NaN makes every weight of the row NaN.
  const double sum = exponential_row(row.p.data(), static_cast<std::int64_t>(row.p.size()), top);
  for (double& p : row.p) p /= sum;
  row.lse = top + std::log(sum);
  return row;
}

void backward_row(const HeadSlice& head, std::int64_t i, const Row& row, const Inputs& inputs, double scale,
                  Exact& exact) {
  const std::int64_t token = head.first_q + i;
  const std::span<const double> d_o = inputs.d_o.row(token, head.h);  // [Dv]
  double delta = dot(d_o, exact.o.row(token, head.h));
  if (!inputs.d_lse.empty()) delta -= inputs.d_lse[token * exact.o.heads + head.h];
  for (std::size_t n = 0; n < row.keys.size(); ++n) {
    const std::int64_t key = head.first_k + row.keys[n];
    const double dp = dot(d_o, inputs.v.row(key, head.head_kv)) * row.factor[n];
    const double ds = row.p[n] * (dp - delta);
    add_scaled(scale * ds * row.slope[n], inputs.k.row(key, head.head_kv), exact.dq.row(token, head.h));
    add_scaled(scale * ds * row.slope[n], inputs.q.row(token, head.h), exact.dk.row(key, head.head_kv));
    add_scaled(row.p[n] * row.factor[n], d_o, exact.dv.row(key, head.head_kv));
    if (!exact.d_bias.empty()) exact.d_bias.data[exact.d_bias.index(head.b, head.h, i, row.keys[n])] += ds;
  }
}

}  // namespace

void sweep_carefully(const Problem& problem, const Inputs& inputs, const Scores& scores, Exact& exact) {
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    for (std::int64_t h = 0; h < problem.heads_q; ++h) {
      const HeadSlice head = head_slice(problem, b, h);
      for (std::int64_t i = 0; i < head.seq_q; ++i) {
        const Row row = softmax_row(head, i, inputs, scores);
        exact.lse[(head.first_q + i) * problem.heads_q + h] = row.lse;
        for (std::size_t n = 0; n < row.keys.size(); ++n) {
          add_scaled(row.p[n] * row.factor[n], inputs.v.row(head.first_k + row.keys[n], head.head_kv),
                     exact.o.row(head.first_q + i, h));
        }
        if (problem.wants_backward()) backward_row(head, i, row, inputs, scores.scale(), exact);
      }
    }
  }
}

}  // namespace attest

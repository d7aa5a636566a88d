// SPDX-License-Identifier: Apache-2.0
// exact_attention: which sweeps run, and the cutting of a problem into blocks.
#include "reference/oracle/exact.h"

#include <Eigen/Core>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "reference/oracle/sweep.h"

namespace attest {
namespace {

// Eigen cuts sums by the cache sizes that it finds; fixed ones give the same bits on every machine.
const bool kFixedCacheSizes = [] {
  Eigen::setCpuCacheSizes(32 * 1024, 512 * 1024, 4 * 1024 * 1024);
  return true;
}();

std::atomic<std::int64_t> evaluations = 0;

constexpr double kTame = 1e70;  // products of four such numbers stay finite

bool tame(const std::vector<double>& data) {
  return std::all_of(data.begin(), data.end(), [](double x) { return std::abs(x) < kTame; });
}

bool tame_bias(const Operand<double>& bias) {
  return std::all_of(bias.data.begin(), bias.data.end(),
                     [](double x) { return x == -std::numeric_limits<double>::infinity() || std::abs(x) < kTame; });
}

bool tame(const Problem& problem, const Inputs& inputs) {
  return std::abs(problem.effective_scale()) < kTame && tame(inputs.q.data) && tame(inputs.k.data) &&
         tame(inputs.v.data) && tame(inputs.d_o.data) && tame(inputs.d_lse) && tame_bias(inputs.bias);
}

Exact make_outputs(const Problem& problem, const Inputs& inputs) {
  const std::int64_t tokens_q = problem.total_q(), tokens_k = problem.total_k();
  Exact exact;
  exact.o = Values(tokens_q, problem.heads_q, problem.width_v());
  exact.lse.assign(static_cast<std::size_t>(tokens_q * problem.heads_q), 0);
  if (!problem.wants_backward()) return exact;
  exact.dq = Values(tokens_q, problem.heads_q, problem.dim);
  exact.dk = Values(tokens_k, problem.heads_kv, problem.dim);
  exact.dv = Values(tokens_k, problem.heads_kv, problem.width_v());
  if (problem.d_bias) {
    exact.d_bias = inputs.bias;
    std::fill(exact.d_bias.data.begin(), exact.d_bias.data.end(), 0.0);
  }
  return exact;
}

}  // namespace

HeadSlice head_slice(const Problem& problem, std::int64_t b, std::int64_t h) {
  HeadSlice head = {b, h, h / problem.group(), 0, 0, problem.seq_q[b], problem.seq_k[b]};
  for (std::int64_t earlier = 0; earlier < b; ++earlier) {
    head.first_q += problem.seq_q[earlier];
    head.first_k += problem.seq_k[earlier];
  }
  return head;
}

void append_row_blocks(const HeadSlice& head, std::vector<RowBlock>& blocks) {
  for (std::int64_t i = 0; i < head.seq_q; i += kBlockRows) {
    blocks.push_back({head, i, std::min(kBlockRows, head.seq_q - i)});
  }
}

double flops(const Problem& problem, int matmuls) {
  double pairs = 0;
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    pairs += static_cast<double>(problem.seq_q[b]) * static_cast<double>(problem.seq_k[b]);
  }
  return pairs * static_cast<double>(problem.heads_q * (problem.dim + problem.width_v()) * matmuls);
}

Exact exact_attention(const Problem& problem, const Inputs& inputs) {
  static_cast<void>(kFixedCacheSizes);
  ++evaluations;
  const Scores scores(problem, inputs);
  Exact exact = make_outputs(problem, inputs);
  if (!tame(problem, inputs)) {
    sweep_carefully(problem, inputs, scores, exact);
    return exact;
  }
  sweep_forward(problem, inputs, scores, exact);
  if (problem.wants_backward()) sweep_backward(problem, inputs, scores, exact);
  if (problem.wants_backward() && problem.d_bias) sweep_bias_gradient(problem, inputs, scores, exact);
  return exact;
}

std::int64_t exact_evaluations() { return evaluations; }

}  // namespace attest

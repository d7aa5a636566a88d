// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/judge_outputs.h"

#include "reference/verify/judge.h"

namespace attest {
namespace {

/// [tokens, heads] as Values of width 1.
Values as_values(const std::vector<double>& data, std::int64_t tokens, std::int64_t heads) {
  Values values;
  values.tokens = tokens;
  values.heads = heads;
  values.width = 1;
  values.data = data;
  return values;
}

/// The bias gradient as Values of one "sequence" of [b, h] heads, rows i and columns j.
Values as_values(const Operand<double>& operand) {
  Values values;
  values.tokens = operand.extent_b * operand.extent_h * operand.extent_q;
  values.heads = 1;
  values.width = operand.extent_k;
  values.data = operand.data;
  return values;
}

}  // namespace

std::vector<TensorVerdict> judge_outputs(const Problem& p, const ExactWithBounds& truth, const Outputs& got) {
  std::vector<TensorVerdict> tensors;
  const auto judge = [&](const char* name, const std::vector<std::int64_t>& lengths, const Values& want,
                         const Values& have, const Values& bound, Dtype type) {
    tensors.push_back(judge_tensor(name, lengths, want, have, bound, type, truth.bounds.deviations));
  };
  const Exact& exact = truth.exact;
  if (p.wants_forward()) {
    judge("o", p.seq_q, exact.o, got.o, truth.bounds.o, p.output_dtype());
    judge("lse", p.seq_q, as_values(exact.lse, p.total_q(), p.heads_q), as_values(got.lse, p.total_q(), p.heads_q),
          as_values(truth.bounds.lse, p.total_q(), p.heads_q), p.lse_dtype());
  }
  if (p.wants_backward()) {
    judge("dq", p.seq_q, exact.dq, got.dq, truth.bounds.dq, p.output_dtype());
    judge("dk", p.seq_k, exact.dk, got.dk, truth.bounds.dk, p.output_dtype());
    judge("dv", p.seq_k, exact.dv, got.dv, truth.bounds.dv, p.output_dtype());
    if (p.d_bias) {
      const Values want = as_values(exact.d_bias);
      const std::vector<std::int64_t> rows = {want.tokens};
      judge("dbias", rows, want, as_values(got.d_bias), as_values(truth.bounds.d_bias), p.lse_dtype());
    }
  }
  return tensors;
}

}  // namespace attest

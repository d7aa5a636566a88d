// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/checks/selection.h"

namespace attest {
namespace {

struct Picker {
  const Problem& problem;
  const std::vector<std::int64_t>& sequences;
  const std::vector<std::int64_t>& heads_kv;

  /// Rows of `from`, of the query or the key side, `per_kv` heads of it to a key/value head.
  Values rows(const Values& from, bool query_side, std::int64_t per_kv) const {
    if (from.empty()) return from;
    const std::vector<std::int64_t>& lengths = query_side ? problem.seq_q : problem.seq_k;
    const std::vector<std::int64_t> offsets = token_offsets(lengths);
    std::int64_t tokens = 0;
    for (const std::int64_t b : sequences) tokens += lengths[static_cast<std::size_t>(b)];
    Values to(tokens, static_cast<std::int64_t>(heads_kv.size()) * per_kv, from.width);
    std::int64_t token = 0;
    for (const std::int64_t b : sequences) {
      for (std::int64_t i = 0; i < lengths[static_cast<std::size_t>(b)]; ++i, ++token) {
        std::int64_t head = 0;
        for (const std::int64_t kv : heads_kv) {
          for (std::int64_t h = kv * per_kv; h < (kv + 1) * per_kv; ++h, ++head) {
            const auto row = from.row(offsets[static_cast<std::size_t>(b)] + i, h);
            std::copy(row.begin(), row.end(), to.row(token, head).begin());
          }
        }
      }
    }
    return to;
  }

  std::vector<double> per_row(const std::vector<double>& from) const {
    if (from.empty()) return from;
    Values values(problem.total_q(), problem.heads_q, 1);
    values.data = from;
    return rows(values, true, problem.group()).data;
  }

  template <typename T>
  Operand<T> operand(const Operand<T>& from) const {
    if (from.empty()) return from;
    Operand<T> to = from;
    std::vector<std::int64_t> batches = {0};
    std::vector<std::int64_t> heads = {0};
    if (from.extent_b > 1) batches = sequences;
    if (from.extent_h > 1) {
      heads.clear();
      for (const std::int64_t kv : heads_kv) {
        for (std::int64_t h = kv * problem.group(); h < (kv + 1) * problem.group(); ++h) heads.push_back(h);
      }
    }
    to.extent_b = static_cast<std::int64_t>(batches.size());
    to.extent_h = static_cast<std::int64_t>(heads.size());
    to.data.clear();
    for (const std::int64_t b : batches) {
      for (const std::int64_t h : heads) {
        const auto first = from.data.begin() + static_cast<std::ptrdiff_t>((b * from.extent_h + h) * from.extent_q * from.extent_k);
        to.data.insert(to.data.end(), first, first + static_cast<std::ptrdiff_t>(from.extent_q * from.extent_k));
      }
    }
    return to;
  }
};

}  // namespace

Selection select(const CheckContext& context, const std::vector<std::int64_t>& sequences,
                 const std::vector<std::int64_t>& heads_kv) {
  const Problem& p = context.problem();
  const Picker pick{p, sequences, heads_kv};
  Selection chosen;
  Problem& q = chosen.problem;
  q = p;
  q.seq_q.clear();
  q.seq_k.clear();
  for (const std::int64_t b : sequences) {
    q.seq_q.push_back(p.seq_q[static_cast<std::size_t>(b)]);
    q.seq_k.push_back(p.seq_k[static_cast<std::size_t>(b)]);
  }
  q.heads_kv = static_cast<std::int64_t>(heads_kv.size());
  q.heads_q = q.heads_kv * p.group();
  q.extent_q.reset();
  q.extent_k.reset();
  q.d_bias = false;
  for (auto& strides : q.strides) strides.reset();

  const Inputs& from = context.inputs();
  Inputs& to = chosen.inputs;
  to.q = pick.rows(from.q, true, p.group());
  to.k = pick.rows(from.k, false, 1);
  to.v = pick.rows(from.v, false, 1);
  to.d_o = pick.rows(from.d_o, true, p.group());
  to.d_lse = pick.per_row(from.d_lse);
  to.bias = pick.operand(from.bias);
  to.mask = pick.operand(from.mask);
  to.block_mask = pick.operand(from.block_mask);
  if (p.alibi) {
    for (const std::int64_t kv : heads_kv) {
      for (std::int64_t h = kv * p.group(); h < (kv + 1) * p.group(); ++h) {
        to.alibi_slopes.push_back(from.alibi_slopes[static_cast<std::size_t>(h)]);
      }
    }
  }
  const auto pick_all = [&](const auto& all, auto& some) {
    some.o = pick.rows(all.o, true, p.group());
    some.lse = pick.per_row(all.lse);
    some.dq = pick.rows(all.dq, true, p.group());
    some.dk = pick.rows(all.dk, false, 1);
    some.dv = pick.rows(all.dv, false, 1);
  };
  pick_all(context.truth().exact, chosen.truth.exact);
  pick_all(context.truth().bounds, chosen.truth.bounds);
  return chosen;
}

}  // namespace attest

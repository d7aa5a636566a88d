// SPDX-License-Identifier: Apache-2.0
#include "tests/support/slow_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/philox.h"

namespace attest::slow {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// One query row of one head: where it is, and where its keys are.
struct Place {
  std::int64_t b, h, i;
  std::int64_t query;      // its token
  std::int64_t first_key;  // token of key 0 of the sequence
  std::int64_t kv_head;
  std::int64_t lse;  // its place in lse and d_lse
};

/// One key that a row sees, with all that the formulas say about the pair.
struct Pair {
  std::int64_t j;
  std::int64_t key;      // its token
  BigFloat score;        // s_ij
  BigFloat cap_slope;    // 1 - tanh^2 of the capped score, else 1
  BigFloat kept_weight;  // Z_ij / (1 - p)
  BigFloat p;            // P_ij
};

struct Row {
  std::vector<Pair> pairs;
  BigFloat lse;
};

/// Bottom-right aligns the last query with the last key, top-left the first with the first.
std::int64_t shift_of(const Problem& problem, Causal alignment, std::int64_t b) {
  return alignment == Causal::top_left ? 0 : problem.seq_k[b] - problem.seq_q[b];
}

Pair pair_of(const Problem& problem, const BigInputs& in, const Place& at, std::int64_t j, double& score_magnitude) {
  Pair pair{j, at.first_key + j, 0.0, 1.0, 1.0, 0.0};
  const BigFloat scale = problem.effective_scale();
  const BigFloat* q = in.q.row(at.query, at.h);        // [D]
  const BigFloat* k = in.k.row(pair.key, at.kv_head);  // [D]
  double magnitude = 0;
  for (std::int64_t d = 0; d < problem.dim; ++d) {
    pair.score.add_product(q[d], k[d]);
    magnitude += std::abs(q[d].to_double() * k[d].to_double());
  }
  pair.score *= scale;
  magnitude *= std::abs(scale.to_double());
  if (problem.softcap > 0) {
    const BigFloat cap = problem.effective_softcap();
    const BigFloat ratio = pair.score / cap;
    pair.score = cap * tanh(ratio);
    pair.cap_slope = sech(ratio) * sech(ratio);
    magnitude *= std::max(1.0, 2 / cap.to_double());
  }
  if (problem.bias) {
    const BigFloat bias = in.bias.at(at.b, at.h, at.i, j);
    pair.score += bias;
    magnitude += std::abs(bias.to_double());
  }
  if (problem.alibi) {
    const double distance = static_cast<double>(std::abs(at.i + problem.seq_k[at.b] - problem.seq_q[at.b] - j));
    const BigFloat alibi = in.alibi_slopes[at.h] * -distance;
    pair.score += alibi;
    magnitude += std::abs(alibi.to_double());
  }
  if (problem.dropout) {
    const BigFloat keep_share = BigFloat(1.0) - problem.effective_dropout();
    pair.kept_weight = kept(problem, at.b, at.h, at.i, j) ? BigFloat(1.0) / keep_share : BigFloat(0.0);
  }
  if (std::isfinite(magnitude)) score_magnitude = std::max(score_magnitude, magnitude);
  return pair;
}

/// The softmax over what the row sees. A row without keys gets lse = -inf + log(0) = -inf; a score of NaN or +inf
/// makes every P and the lse NaN by the arithmetic alone.
Row row_of(const Problem& problem, const BigInputs& in, const Place& at, double& score_magnitude) {
  Row row;
  BigFloat largest = -kInfinity;
  for (std::int64_t j = 0; j < problem.seq_k[at.b]; ++j) {
    if (!visible(problem, in.mask, in.block_mask, at.b, at.h, at.i, j)) continue;
    row.pairs.push_back(pair_of(problem, in, at, j, score_magnitude));
    if (row.pairs.back().score == -kInfinity)
      row.pairs.pop_back();  // a score of -inf hides its key
    else if (largest < row.pairs.back().score)
      largest = row.pairs.back().score;
  }
  BigFloat sum;
  for (Pair& pair : row.pairs) {
    pair.p = exp(pair.score - largest);
    sum += pair.p;
  }
  for (Pair& pair : row.pairs) pair.p /= sum;
  row.lse = largest + log(sum);
  return row;
}

void forward_row(const Problem& problem, const BigInputs& in, const Place& at, const Row& row, BigResult& out) {
  BigFloat* o = out.value.o.row(at.query, at.h);                 // [Dv]
  const auto o_magnitude = out.magnitude.o.row(at.query, at.h);  // [Dv]
  for (const Pair& pair : row.pairs) {
    const BigFloat* v = in.v.row(pair.key, at.kv_head);  // [Dv]
    const BigFloat weight = pair.p * pair.kept_weight;
    for (std::int64_t c = 0; c < problem.width_v(); ++c) {
      o[c].add_product(weight, v[c]);
      o_magnitude[c] += weight.to_double() * std::abs(v[c].to_double());
    }
  }
  out.value.lse[at.lse] = row.lse;
  out.magnitude.lse[at.lse] = std::max(1.0, std::abs(row.lse.to_double()));
}

/// dP_ij of every pair, and its magnitude.
void gradient_of_p(const Problem& problem, const BigInputs& in, const Place& at, const Row& row,
                   std::vector<BigFloat>& d_p, std::vector<double>& d_p_magnitude) {
  const BigFloat* d_o = in.d_o.row(at.query, at.h);  // [Dv]
  for (const Pair& pair : row.pairs) {
    const BigFloat* v = in.v.row(pair.key, at.kv_head);  // [Dv]
    BigFloat product;
    double magnitude = 0;
    for (std::int64_t c = 0; c < problem.width_v(); ++c) {
      product.add_product(d_o[c], v[c]);
      magnitude += std::abs(d_o[c].to_double() * v[c].to_double());
    }
    d_p.push_back(product * pair.kept_weight);
    d_p_magnitude.push_back(magnitude * pair.kept_weight.to_double());
  }
}

void backward_row(const Problem& problem, const BigInputs& in, const Place& at, const Row& row, BigResult& out) {
  std::vector<BigFloat> d_p;          // [pairs]
  std::vector<double> d_p_magnitude;  // [pairs]
  gradient_of_p(problem, in, at, row, d_p, d_p_magnitude);
  BigFloat delta = problem.d_lse ? -in.d_lse[at.lse] : BigFloat();
  double delta_magnitude = std::abs(delta.to_double());
  for (std::size_t n = 0; n < row.pairs.size(); ++n) {
    delta.add_product(row.pairs[n].p, d_p[n]);
    delta_magnitude += row.pairs[n].p.to_double() * d_p_magnitude[n];
  }
  const BigFloat scale = problem.effective_scale();
  const BigFloat* q = in.q.row(at.query, at.h);      // [D]
  const BigFloat* d_o = in.d_o.row(at.query, at.h);  // [Dv]
  BigFloat* dq = out.value.dq.row(at.query, at.h);   // [D]
  const auto dq_magnitude = out.magnitude.dq.row(at.query, at.h);
  for (std::size_t n = 0; n < row.pairs.size(); ++n) {
    const Pair& pair = row.pairs[n];
    const BigFloat* k = in.k.row(pair.key, at.kv_head);     // [D]
    BigFloat* dk = out.value.dk.row(pair.key, at.kv_head);  // [D]
    BigFloat* dv = out.value.dv.row(pair.key, at.kv_head);  // [Dv]
    const auto dk_magnitude = out.magnitude.dk.row(pair.key, at.kv_head);
    const auto dv_magnitude = out.magnitude.dv.row(pair.key, at.kv_head);

    // The bias is added after the cap, so its gradient does not pass through the slope of the cap.
    const BigFloat after_cap = pair.p * (d_p[n] - delta);
    const double after_cap_magnitude = pair.p.to_double() * (d_p_magnitude[n] + delta_magnitude);
    if (problem.d_bias) {
      const std::size_t index = out.value.d_bias.index(at.b, at.h, at.i, pair.j);
      out.value.d_bias.data[index] += after_cap;
      out.magnitude.d_bias.data[index] += after_cap_magnitude;
    }
    const BigFloat scaled_ds = scale * after_cap * pair.cap_slope;
    const double scaled_ds_magnitude = std::abs(scale.to_double()) * after_cap_magnitude * pair.cap_slope.to_double();
    for (std::int64_t d = 0; d < problem.dim; ++d) {
      dq[d].add_product(scaled_ds, k[d]);
      dk[d].add_product(scaled_ds, q[d]);
      dq_magnitude[d] += scaled_ds_magnitude * std::abs(k[d].to_double());
      dk_magnitude[d] += scaled_ds_magnitude * std::abs(q[d].to_double());
    }
    const BigFloat weight = pair.p * pair.kept_weight;
    for (std::int64_t c = 0; c < problem.width_v(); ++c) {
      dv[c].add_product(weight, d_o[c]);
      dv_magnitude[c] += weight.to_double() * std::abs(d_o[c].to_double());
    }
  }
}

/// Results of the right shapes, all zero: what an unseen row or key keeps.
BigResult zero_result(const Problem& problem) {
  const std::int64_t tokens_q = problem.total_q(), tokens_k = problem.total_k();
  BigResult out;
  out.value.o = {tokens_q, problem.heads_q, problem.width_v()};
  out.magnitude.o = {tokens_q, problem.heads_q, problem.width_v()};
  out.value.lse.resize(tokens_q * problem.heads_q);
  out.magnitude.lse.resize(tokens_q * problem.heads_q);
  if (!problem.wants_backward()) return out;
  out.value.dq = {tokens_q, problem.heads_q, problem.dim};
  out.magnitude.dq = {tokens_q, problem.heads_q, problem.dim};
  out.value.dk = {tokens_k, problem.heads_kv, problem.dim};
  out.magnitude.dk = {tokens_k, problem.heads_kv, problem.dim};
  out.value.dv = {tokens_k, problem.heads_kv, problem.width_v()};
  out.magnitude.dv = {tokens_k, problem.heads_kv, problem.width_v()};
  if (!problem.d_bias) return out;
  const Broadcast& own = problem.bias->shape;
  const std::int64_t extents[] = {own.batch ? problem.batch() : 1, own.head ? problem.heads_q : 1,
                                  own.query ? problem.max_q() : 1, own.key ? problem.max_k() : 1};
  const std::size_t count = extents[0] * extents[1] * extents[2] * extents[3];
  out.value.d_bias = {extents[0], extents[1], extents[2], extents[3], std::vector<BigFloat>(count)};
  out.magnitude.d_bias = {extents[0], extents[1], extents[2], extents[3], std::vector<double>(count)};
  return out;
}

std::vector<BigFloat> widen(const std::vector<double>& values) { return {values.begin(), values.end()}; }

BigValues widen(const Values& values) {
  BigValues wide;
  wide.heads = values.heads;
  wide.width = values.width;
  wide.data = widen(values.data);
  return wide;
}

std::vector<double> rounded(const std::vector<BigFloat>& values) {
  std::vector<double> narrow;
  for (const BigFloat& value : values) narrow.push_back(value.to_double());
  return narrow;
}

Values rounded(const BigValues& values, const Values& same_shape) {
  Values narrow = same_shape;
  narrow.data = rounded(values.data);
  return narrow;
}

}  // namespace

bool visible(const Problem& problem, const Operand<std::uint8_t>& mask, const Operand<std::uint8_t>& block_mask,
             std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  if (i >= problem.seq_q[b] || j >= problem.seq_k[b]) return false;
  if (problem.causal != Causal::none && j > i + shift_of(problem, problem.causal, b)) return false;
  if (problem.window) {
    const Window& window = *problem.window;
    const std::int64_t middle =
        i + shift_of(problem, window.alignment == Causal::none ? problem.causal : window.alignment, b);
    if (window.left != -1 && j < middle - window.left) return false;
    if (window.right != -1 && j > middle + window.right) return false;
  }
  if (problem.mask && mask.at(b, h, i, j) == 0) return false;
  if (problem.block && block_mask.at(b, h, i / problem.block->rows, j / problem.block->cols) == 0) return false;
  return true;
}

bool kept(const Problem& problem, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  const auto word = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const std::uint64_t seed = problem.dropout->seed;
  const auto random = philox4x32({word(j / 4), word(i), word(b * problem.heads_q + h), word(problem.dropout->offset)},
                                 {word(seed), word(seed >> 32)});
  const BigFloat threshold = (BigFloat(1.0) - problem.effective_dropout()) * 0x1p32;
  return BigFloat(random[j % 4]) < threshold;
}

BigInputs widen(const Inputs& inputs) {
  return {
      widen(inputs.q),
      widen(inputs.k),
      widen(inputs.v),
      widen(inputs.d_o),
      widen(inputs.d_lse),
      {inputs.bias.extent_b, inputs.bias.extent_h, inputs.bias.extent_q, inputs.bias.extent_k, widen(inputs.bias.data)},
      inputs.mask,
      inputs.block_mask,
      widen(inputs.alibi_slopes)};
}

BigResult attention(const Problem& problem, const BigInputs& inputs) {
  BigResult out = zero_result(problem);
  std::int64_t first_query = 0, first_key = 0;
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    for (std::int64_t i = 0; i < problem.seq_q[b]; ++i) {
      for (std::int64_t h = 0; h < problem.heads_q; ++h) {
        const std::int64_t query = first_query + i;
        const Place at{
            b, h, i, query, first_key, h / (problem.heads_q / problem.heads_kv), query * problem.heads_q + h};
        const Row row = row_of(problem, inputs, at, out.score_magnitude);
        forward_row(problem, inputs, at, row, out);
        if (problem.wants_backward()) backward_row(problem, inputs, at, row, out);
      }
    }
    first_query += problem.seq_q[b];
    first_key += problem.seq_k[b];
  }
  return out;
}

Result attention(const Problem& problem, const Inputs& inputs) {
  const BigResult big = attention(problem, widen(inputs));
  Result out;
  out.magnitude = big.magnitude;
  out.score_magnitude = big.score_magnitude;
  out.value.o = rounded(big.value.o, big.magnitude.o);
  out.value.lse = rounded(big.value.lse);
  out.value.dq = rounded(big.value.dq, big.magnitude.dq);
  out.value.dk = rounded(big.value.dk, big.magnitude.dk);
  out.value.dv = rounded(big.value.dv, big.magnitude.dv);
  out.value.d_bias = big.magnitude.d_bias;
  out.value.d_bias.data = rounded(big.value.d_bias.data);
  return out;
}

Exact correctly_rounded(const Problem& problem, const Inputs& inputs, int bits) {
  const BigFloat::Precision precision(bits);
  Exact exact = attention(problem, inputs).value;
  for (std::vector<double>* values :
       {&exact.o.data, &exact.lse, &exact.dq.data, &exact.dk.data, &exact.dv.data, &exact.d_bias.data}) {
    for (double& x : *values) x += 0.0;  // -0 + 0 is +0
  }
  return exact;
}

}  // namespace attest::slow

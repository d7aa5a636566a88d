// SPDX-License-Identifier: Apache-2.0
// The slow oracle: attention forward and backward as plain loops over the contract's formulas (docs/contract.md), in
// 256-bit arithmetic. It shares nothing with reference/oracle, which it checks: mask, head mapping, dropout and
// Philox are its own. For small problems only.
//
//   slow::Result want = slow::attention(problem, make_inputs(problem));   // want.value.o, want.magnitude.o
#pragma once

#include <cstdint>
#include <vector>

#include "reference/oracle/exact.h"  // for the shape of the results, struct Exact, and nothing else
#include "reference/problem/inputs.h"
#include "reference/problem/problem.h"
#include "tests/support/big_float.h"

namespace attest::slow {

struct BigValues {
  std::int64_t heads = 0;
  std::int64_t width = 0;
  std::vector<BigFloat> data;  // [tokens, heads, width]

  BigValues() = default;
  BigValues(std::int64_t tokens, std::int64_t heads_, std::int64_t width_)
      : heads(heads_), width(width_), data(static_cast<std::size_t>(tokens * heads_ * width_)) {}
  BigFloat* row(std::int64_t token, std::int64_t head) { return data.data() + (token * heads + head) * width; }
  const BigFloat* row(std::int64_t token, std::int64_t head) const {
    return data.data() + (token * heads + head) * width;
  }
};

/// Inputs (inputs.h) with 256 bits, so that a test can move one by far less than a double can say.
struct BigInputs {
  BigValues q;                  // [tokens_q, Hq, D]
  BigValues k;                  // [tokens_k, Hkv, D]
  BigValues v;                  // [tokens_k, Hkv, Dv]
  BigValues d_o;                // [tokens_q, Hq, Dv]
  std::vector<BigFloat> d_lse;  // [tokens_q, Hq]
  Operand<BigFloat> bias;
  Operand<std::uint8_t> mask;
  Operand<std::uint8_t> block_mask;
  std::vector<BigFloat> alibi_slopes;  // [Hq]
};
BigInputs widen(const Inputs& inputs);

struct BigOutputs {
  BigValues o;                // [tokens_q, Hq, Dv]
  std::vector<BigFloat> lse;  // [tokens_q, Hq]
  BigValues dq;               // [tokens_q, Hq, D]
  BigValues dk;               // [tokens_k, Hkv, D]
  BigValues dv;               // [tokens_k, Hkv, Dv]
  Operand<BigFloat> d_bias;   // shape of the bias
};

/// With every output, the size of what is summed to make it: what a relative error of its terms is relative to.
///   o       sum_j P Z/(1-p) |v|
///   lse     max(1, |lse|)
///   |dP|    Z/(1-p) sum_c |dO| |v|
///   |delta| sum_j P |dP| + |dLSE|
///   |dS|    P (|dP| + |delta|) (1 - tanh^2)
///   dq      |scale| sum_j |dS| |k|          dk   |scale| sum_i |dS| |q|
///   dv      sum_i P Z/(1-p) |dO|            d_bias   sum P (|dP| + |delta|)
template <typename Outputs>
struct Measured {
  Outputs value;
  Exact magnitude;
  /// The largest |scale| sum |q| |k| + |bias| + |alibi| of a finite score: a relative error e of the scores' terms
  /// is a relative error of about e times this in P. A softcap below 2 makes it 2 / cap times more, which is what the
  /// error becomes in 1 - tanh^2.
  double score_magnitude = 0;
};
using BigResult = Measured<BigOutputs>;
using Result = Measured<Exact>;

BigResult attention(const Problem& problem, const BigInputs& inputs);
/// The same, each value rounded once to double.
Result attention(const Problem& problem, const Inputs& inputs);
/// The double nearest to each exact value, with a zero always +0. 256 bits leave about 1e-77 of what cancels; `bits`
/// below the smallest double leave nothing that a double could hold.
Exact correctly_rounded(const Problem& problem, const Inputs& inputs, int bits = 1280);

/// True where masks, window, causality and lengths let query i of (b, h) see key j.
bool visible(const Problem& problem, const Operand<std::uint8_t>& mask, const Operand<std::uint8_t>& block_mask,
             std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j);
/// True where dropout keeps (b, h, i, j).
bool kept(const Problem& problem, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j);

}  // namespace attest::slow

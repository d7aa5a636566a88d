// SPDX-License-Identifier: Apache-2.0
// The exact oracle: attention forward and backward straight from the contract's formulas (docs/contract.md), in
// double on Eigen, rows in tiles, O(S) extra memory, the same bits for any number of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/problem/inputs.h"
#include "reference/problem/problem.h"
#include "reference/problem/values.h"

namespace attest {

/// Exact outputs, before any rounding to the output type. Rows that see no key: o = 0, lse = -inf, gradients 0.
struct Exact {
  Values o;                 // [tokens_q, Hq, Dv]
  std::vector<double> lse;  // [tokens_q, Hq], natural logarithm
  Values dq;                // [tokens_q, Hq, D]; gradients empty for forward only
  Values dk;                // [tokens_k, Hkv, D]
  Values dv;                // [tokens_k, Hkv, Dv]
  Operand<double> d_bias;   // [B|1, Hq|1, Sq|1, Sk|1] as the bias; empty unless asked for
};

/// Computes what problem.direction asks for (backward needs, and gives, o and lse too). Memory beyond the outputs:
/// 512 bytes per key of the longest sequence and thread (the scores of 64 queries), and at most
/// 120 KiB * (D + Dv) for partial sums of dk and dv; nothing grows with Sq * Sk.
Exact exact_attention(const Problem& problem, const Inputs& inputs);

/// How often this process has called exact_attention, which is what costs most in verifying a case.
std::int64_t exact_evaluations();

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// What attention gives on the exact families, from counting and integer sums alone: no softmax, no oracle. Elements marked
// exact are compared bit for bit with a kernel whose declared arithmetic cannot move them; the others keep their bound.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/oracle/bound.h"

namespace attest {

struct ClosedTensor {
  Values value;                     // [tokens, heads, width]; empty where nothing is known
  std::vector<std::uint8_t> exact;  // [tokens, heads, width] 1: to the last bit of the output type
};

struct ClosedForm {
  ClosedTensor o, dq, dk, dv;  // as in Exact
  std::vector<double> lse;     // [tokens_q, Hq]; NaN where no closed form is known
  bool odd_counts = false;     // some row sees a number of keys that is no power of two: o is exact only once rounded
};

/// For a problem whose family is of kind exact.
ClosedForm closed_form(const Problem& problem, const Inputs& inputs);

/// Whether bits can be asked of a kernel: float32 accumulation and, for the gradients, P and dS rounded to 16 bits or fewer,
/// which absorbs the errors of exp. P divided before it is rounded is only exact where counts are powers of two.
struct BitwiseClaims {
  bool o;
  bool o_any_count;  // also where a row sees a number of keys that is no power of two
  bool gradients;
};
BitwiseClaims bitwise_claims(const NumericsProfile& profile);

/// Puts the closed form in the place of the oracle's values, with bound 0, where the profile claims bits; the number of
/// elements to which this was done.
std::int64_t apply_closed_form(const Problem& problem, const Inputs& inputs, const NumericsProfile& profile,
                               ExactWithBounds& truth);

}  // namespace attest

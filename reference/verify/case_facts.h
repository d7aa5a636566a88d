// SPDX-License-Identifier: Apache-2.0
// What can be said of a case before anything runs: sizes, work, what is visible, what must be returned.
#pragma once

#include <cstdint>
#include <string>

#include "reference/problem/problem.h"

namespace attest {

struct CaseFacts {
  double forward_flops = 0;    // 2 (D + Dv) per visible pair
  double backward_flops = 0;   // 2 (3 D + 2 Dv) per visible pair: S, dP, dQ, dK, dV
  std::int64_t pairs = 0;      // query-key pairs over all sequences and query heads
  std::int64_t visible = 0;    // of them; -inf biases count as hidden
  std::int64_t rows = 0;       // query rows over all heads
  std::int64_t empty_rows = 0;
  std::int64_t unseen_keys = 0;  // key/value rows that no query sees, over all key/value heads
  std::int64_t input_bytes = 0;  // q k v (and do)
  std::int64_t output_bytes = 0;
};

/// Counts by the oracle's own mask. Throws InvalidRequest where the case has more than 2^32 pairs.
CaseFacts case_facts(const Problem& problem);

/// The facts in words, one per line, with what a kernel must return.
std::string explain_case(const Problem& problem);

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// Makes the cases of a pack. Exact values, visibility and the dropout mask come from a source that the caller hands
// in: the slow oracle, in `attest golden make`.
#pragma once

#include <functional>

#include "golden/corpus.h"
#include "golden/golden_case.h"

namespace attest::golden {

/// An implementation of the contract that rounds each exact value once.
struct TruthSource {
  std::function<Exact(const Problem&, const Inputs&)> exact;
  std::function<bool(const Problem&, const Inputs&, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j)>
      visible;
  std::function<bool(const Problem&, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j)> kept;
};

/// Throws InvalidRequest ("FILE:LINE: FIELD") for a case that no pack can hold: float64, captured inputs, more than
/// 2^22 pairs of queries and keys, or an `exact` output that the output type cannot hold.
GoldenCase make_golden_case(const GoldenRequest& request, const TruthSource& truth);

/// The same for all, on `threads` threads; the result does not depend on their number.
std::vector<GoldenCase> make_golden_cases(const std::vector<GoldenRequest>& requests, const TruthSource& truth,
                                          int threads);

}  // namespace attest::golden

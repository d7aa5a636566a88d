// SPDX-License-Identifier: Apache-2.0
// One pass over all blocks of queries that computes the bounds of every output, given the exact results. Rule (GenRow or
// DetRow) has the formulas of a row; here are the products, the sums over rows, and the last roundings.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/oracle/bound.h"
#include "reference/oracle/bound_row.h"
#include "reference/oracle/scores.h"

namespace attest {

/// Whether a bound holds for each row of q and of k, by kind of row.
struct BoundTrust {
  std::vector<std::uint8_t> rows;       // [tokens_q, Hq] 1: o and lse are bounded
  std::vector<std::uint8_t> gradients;  // [tokens_q, Hq] 1: dq too
  std::vector<std::uint8_t> keys;       // [tokens_k, Hkv] 1: dk and dv
};

struct SweptBounds {
  Bounds bounds;
  BoundTrust trust;
};

/// Relative errors of P that gen takes for common.
struct CommonErrors {
  double row = 0;   // to a row: captured data
  double head = 0;  // to all rows of a head: the mean of the roundings
};

/// Instantiated for GenRow<float>, GenRow<double> and DetRow.
template <typename Rule>
SweptBounds sweep_bounds(const Problem& problem, const Inputs& inputs, const Scores& scores, const Exact& exact,
                         const NumericsProfile& profile, double lambda, CommonErrors common);

}  // namespace attest

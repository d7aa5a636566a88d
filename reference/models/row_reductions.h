// SPDX-License-Identifier: Apache-2.0
// Largest element and sum of a row, in eight partial results that are joined in order: the same bits on every machine
// and fit for vector units. The number of partial sums is what the models declare as `lanes`.
#pragma once

#include <cstdint>
#include <limits>

#include "reference/models/softmax_state.h"

namespace attest {

inline constexpr std::int64_t kRowLanes = 8;

template <typename Real>
Real row_max(const Real* x, std::int64_t count) {  // [count]; NaN if any element is
  Real lane[kRowLanes];
  for (Real& m : lane) m = -std::numeric_limits<Real>::infinity();
  std::int64_t c = 0;
  for (; c + kRowLanes <= count; c += kRowLanes)
    for (std::int64_t n = 0; n < kRowLanes; ++n) lane[n] = max_or_nan(lane[n], x[c + n]);
  for (std::int64_t n = 0; c < count; ++c, ++n) lane[n] = max_or_nan(lane[n], x[c]);
  Real m = lane[0];
  for (std::int64_t n = 1; n < kRowLanes; ++n) m = max_or_nan(m, lane[n]);
  return m;
}

template <typename Real>
Real row_sum(const Real* x, std::int64_t count) {  // [count]
  Real lane[kRowLanes] = {};
  std::int64_t c = 0;
  for (; c + kRowLanes <= count; c += kRowLanes)
    for (std::int64_t n = 0; n < kRowLanes; ++n) lane[n] += x[c + n];
  for (std::int64_t n = 0; c < count; ++c, ++n) lane[n] += x[c];
  Real sum = lane[0];
  for (std::int64_t n = 1; n < kRowLanes; ++n) sum += lane[n];
  return sum;
}

}  // namespace attest

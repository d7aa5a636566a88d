// SPDX-License-Identifier: Apache-2.0
#include "reference/models/fp8_operands.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "reference/models/dropout.h"
#include "reference/models/rounding.h"
#include "reference/problem/invalid_request.h"

namespace attest {

template <typename Real>
void quantise(Real* x, std::int64_t rows, std::int64_t width, std::int64_t block) {
  const auto largest = static_cast<Real>(format_of(Dtype::f8e4m3).max);
  for (std::int64_t i = 0; i < rows; i += block) {
    Real* from = x + i * width;
    const std::int64_t count = std::min(block, rows - i) * width;
    Real max = 0;
    for (std::int64_t c = 0; c < count; ++c) max = std::max(max, std::abs(from[c]));
    if (max == 0) continue;
    const Real scale = max / largest;
    for (std::int64_t c = 0; c < count; ++c) from[c] /= scale;
    round_all(Dtype::f8e4m3, from, count);
    for (std::int64_t c = 0; c < count; ++c) from[c] *= scale;
  }
}

template <typename Real>
void mix_columns(Real* x, std::int64_t rows, std::int64_t width) {
  if (!std::has_single_bit(static_cast<std::uint64_t>(width)))
    throw InvalidRequest("dim", std::to_string(width), "incoherent processing needs a power of two");
  const Real norm = 1 / std::sqrt(static_cast<Real>(width));
  for (std::int64_t i = 0; i < rows; ++i) {
    Real* row = x + i * width;
    for (std::int64_t c = 0; c < width; ++c)
      row[c] *= philox_words({static_cast<std::uint32_t>(c), 0, 0, 0}, 3)[0] & 1 ? norm : -norm;
    for (std::int64_t half = 1; half < width; half *= 2)
      for (std::int64_t c = 0; c < width; ++c)
        if ((c & half) == 0) {
          const Real a = row[c], b = row[c + half];
          row[c] = a + b;
          row[c + half] = a - b;
        }
  }
}

template void quantise(float*, std::int64_t, std::int64_t, std::int64_t);
template void quantise(double*, std::int64_t, std::int64_t, std::int64_t);
template void mix_columns(float*, std::int64_t, std::int64_t);
template void mix_columns(double*, std::int64_t, std::int64_t);

}  // namespace attest

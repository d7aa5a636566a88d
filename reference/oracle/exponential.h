// SPDX-License-Identifier: Apache-2.0
// exp of a row in double by plain arithmetic that compilers vectorise: the same bits on every machine. Within
// 1 ulp for results that are normal numbers, gradual underflow below, exp(-inf) = 0, NaN stays NaN.
// Arguments must be below 709.
#pragma once

#include <bit>
#include <cstdint>

namespace attest {

inline double exponential(double x) {
  constexpr double kRound = 0x1.8p52;  // adding it leaves an integer in the low bits
  constexpr double kLog2High = 0x1.62e42fee00000p-1, kLog2Low = 0x1.a39ef35793c76p-33;  // ln 2 in two parts
  const double bounded = x < -750.0 ? -750.0 : x;
  const double shifted = bounded * 0x1.71547652b82fep0 + kRound;  // x / ln 2
  const double k = shifted - kRound;
  const double r = (bounded - k * kLog2High) - k * kLog2Low;  // |r| <= ln(2) / 2
  // Taylor series of (e^r - 1 - r) / r^2 up to r^11: the first term left out is below 2^-60 of the result.
  const double r2 = r * r;
  const double q01 = 1.0 / 2 + r * (1.0 / 6);
  const double q23 = 1.0 / 24 + r * (1.0 / 120);
  const double q45 = 1.0 / 720 + r * (1.0 / 5040);
  const double q67 = 1.0 / 40320 + r * (1.0 / 362880);
  const double q89 = 1.0 / 3628800 + r * (1.0 / 39916800);
  const double qab = 1.0 / 479001600 + r * (1.0 / 6227020800);
  const double r4 = r2 * r2;
  const double q = (q01 + r2 * q23) + r4 * ((q45 + r2 * q67) + r4 * (q89 + r2 * qab));
  const double mantissa = 1.0 + (r + r2 * q);
  // 2^k in two normal factors, so that results below 2^-1022 are rounded once. Unsigned, biased by 2048.
  const std::uint64_t exponent = std::bit_cast<std::uint64_t>(shifted) - std::bit_cast<std::uint64_t>(kRound) + 2048;
  const std::uint64_t half = exponent >> 1;
  const double scale_a = std::bit_cast<double>((half - 1) << 52);
  const double scale_b = std::bit_cast<double>((exponent - half - 1) << 52);
  return mantissa * scale_a * scale_b;
}

/// x[j] = exp(x[j] - shift); returns their sum, added in an order that depends on `count` alone.
inline double exponential_row(double* x, std::int64_t count, double shift) {
  for (std::int64_t j = 0; j < count; ++j) x[j] = exponential(x[j] - shift);
  constexpr std::int64_t kLanes = 8;
  double partial[kLanes] = {};
  const std::int64_t whole = count - count % kLanes;
  for (std::int64_t j = 0; j < whole; j += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) partial[lane] += x[j + lane];
  }
  for (std::int64_t j = whole; j < count; ++j) partial[j - whole] += x[j];
  return ((partial[0] + partial[4]) + (partial[1] + partial[5])) +
         ((partial[2] + partial[6]) + (partial[3] + partial[7]));
}

}  // namespace attest

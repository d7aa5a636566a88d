// SPDX-License-Identifier: Apache-2.0
// exp over a row. The float version is branch-free so that compilers vectorise it: x = n ln2 + r, the Taylor series of
// degree 7 on |r| <= ln2 / 2, then 2^n in two exact steps, which keeps subnormals, 0 and infinity right.
// exp(0) is exactly 1; relative error below kExpError (tests/models_test.cpp measures it).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace attest {

inline constexpr double kExpErrorFloat = 0x1p-22;
inline constexpr double kExpErrorDouble = 0x1p-52;  // glibc: below one unit in the last place

inline float exponential(float x) {
  x = x < -104.0f ? -104.0f : x;       // exp(-104) rounds to 0; NaN passes both comparisons
  x = x > 89.0f ? 89.0f : x;           // exp(89) overflows to infinity
  constexpr float kRound = 0x1.8p23f;  // adding and subtracting it rounds to an integer
  const float n = (x * 0x1.715476p+0f + kRound) - kRound;
  const float r = (x - n * 0x1.62ep-1f) - n * 0x1.0bfbe8p-15f;  // ln2 = 0x1.62ep-1 (n times it is exact) + rest
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r * r + r + 1.0f;
  const auto exponent = static_cast<std::int32_t>(n == n ? n : 0.0f);
  const std::int32_t half = exponent >> 1;
  const auto power_of_two = [](std::int32_t e) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23);
  };
  return p * power_of_two(half) * power_of_two(exponent - half);
}

inline double exponential(double x) { return std::exp(x); }

/// x[c] := exp(x[c] - shift).
template <typename Real>
void exponential_all(Real* x, std::int64_t count, Real shift) {  // [count]
  for (std::int64_t c = 0; c < count; ++c) x[c] = exponential(x[c] - shift);
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// Inverse of the normal distribution, and the public random word of inputs.h.
//
// The inverse is Wichura's algorithm AS 241 (Applied Statistics 37, 1988), relative error about 1e-16: a rational
// function of the probability in the middle, and of r = sqrt(-ln tail) in the tails. Its logarithm is computed here,
// by series, so that no library's last bit enters.
#include "reference/problem/input_random.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "reference/problem/inputs.h"

namespace attest {
namespace {

using Polynomial = std::array<double, 8>;  // highest power first

double evaluate(const Polynomial& p, double x) {
  return ((((((p[0] * x + p[1]) * x + p[2]) * x + p[3]) * x + p[4]) * x + p[5]) * x + p[6]) * x + p[7];
}

constexpr Polynomial kMiddleTop = {2509.0809287301226727, 33430.575583588128105, 67265.770927008700853,
                                   45921.953931549871457, 13731.693765509461125, 1971.5909503065514427,
                                   133.14166789178437745, 3.387132872796366608};
constexpr Polynomial kMiddleBottom = {
    5226.495278852854561,  28729.085735721942674, 39307.89580009271061,  21213.794301586595867,
    5394.1960214247511077, 687.1870074920579083,  42.313330701600911252, 1.0};
constexpr Polynomial kTailTop = {7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177,
                                 1.27045825245236838258,   3.64784832476320460504,   5.7694972214606914055,
                                 4.6303378461565452959,    1.42343711074968357734};
constexpr Polynomial kTailBottom = {
    1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
    0.68976733498510000455,    1.6763848301838038494,   2.05319162663775882187,   1.0};
constexpr Polynomial kFarTop = {2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386,
                                0.026532189526576123093,   0.29656057182850489123,    1.7848265399172913358,
                                5.4637849111641143699,     6.6579046435011037772};
constexpr Polynomial kFarBottom = {
    2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
    0.0148753612908506148525,   0.13692988092273580531,   0.59983220655588793769,   1.0};

constexpr std::array<double, 11> kOddReciprocals = {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11,
                                                    1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};

/// Natural logarithm of a positive normal number: x = m 2^e with m in [sqrt(1/2), sqrt(2)], and
/// ln m = 2 atanh((m - 1) / (m + 1)).
double natural_log(double x) {
  constexpr std::uint64_t kSqrtHalf = 0x3FE6A09E667F3BCD;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t shifted = bits - kSqrtHalf;
  const std::int64_t exponent = static_cast<std::int64_t>(shifted) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<std::uint64_t>(exponent) << 52));
  const double s = (m - 1) / (m + 1);
  const double z = s * s;  // at most 0.0295
  double sum = 0;
  for (const double coefficient : kOddReciprocals) sum = sum * z + coefficient;
  return 2 * s * sum + static_cast<double>(exponent) * 0.69314718055994530942;
}

constexpr double kMiddle = 0.425;  // the middle's rational function serves |p - 1/2| up to this

double normal_in_middle(double centred) {
  const double r = kMiddle * kMiddle - centred * centred;
  return centred * evaluate(kMiddleTop, r) / evaluate(kMiddleBottom, r);
}

double normal_in_tail(double tail) {
  const double r = std::sqrt(-natural_log(tail));
  if (r <= 5) return evaluate(kTailTop, r - 1.6) / evaluate(kTailBottom, r - 1.6);
  return evaluate(kFarTop, r - 5) / evaluate(kFarBottom, r - 5);
}

/// (n + 1/2) / 2^53 for the n in bits 11 to 62, through the fraction of a double in [1, 2).
double tail_of_word(std::uint64_t word) {
  const double one_to_two = std::bit_cast<double>((word << 1) >> 12 | std::uint64_t{1023} << 52);
  return (one_to_two - 1 + 0x1p-53) * 0.5;
}

double with_sign_of_word(double size, std::uint64_t word) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(size) | (word & std::uint64_t{1} << 63));
}

}  // namespace

double normal_from_tail(double tail) {
  const double centred = 0.5 - tail;
  return centred <= kMiddle ? normal_in_middle(centred) : normal_in_tail(tail);
}

double RandomStream::normal(std::uint64_t index) const {
  const std::uint64_t bits = word(index);
  return with_sign_of_word(normal_from_tail(tail_of_word(bits)), bits);
}

void RandomStream::fill_normal(std::span<double> values) const {
  // In blocks: words, then the middle's formula for all of them (which the compiler vectorises), then the one in
  // seven that lies in a tail.
  constexpr std::size_t kBlock = 64;
  std::array<std::uint64_t, kBlock> words;
  for (std::size_t first = 0; first < values.size(); first += kBlock) {
    const std::span<double> block = values.subspan(first, std::min(kBlock, values.size() - first));
    for (std::size_t n = 0; n < block.size(); ++n) words[n] = word(first + n);
    for (std::size_t n = 0; n < block.size(); ++n) {
      block[n] = with_sign_of_word(normal_in_middle(0.5 - tail_of_word(words[n])), words[n]);
    }
    for (std::size_t n = 0; n < block.size(); ++n) {
      const double tail = tail_of_word(words[n]);
      if (0.5 - tail > kMiddle) block[n] = with_sign_of_word(normal_in_tail(tail), words[n]);
    }
  }
}

std::uint64_t random_word(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return RandomStream(seed, stream).word(index);
}

}  // namespace attest

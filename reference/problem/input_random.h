// SPDX-License-Identifier: Apache-2.0
// The counter-based random numbers of the inputs: word n of a stream is a function of the stream's key and n alone,
// so any element can be made by itself. Only integer arithmetic and + - * / sqrt are used, which IEEE 754 fixes to
// the last bit, so every machine and compiler gets the same bytes (no libm, no contraction).
//
//   RandomStream row = RandomStream(seed, tag).child(b).child(i).child(h);
//   double x = row.normal(d);
#pragma once

#include <cstdint>
#include <span>

namespace attest {

/// A bijection of 64-bit words in which every input bit flips every output bit with probability close to 1/2.
constexpr std::uint64_t scramble(std::uint64_t word) {
  word = (word ^ (word >> 32)) * 0x6A09E667F3BCC909;  // fraction of sqrt(2)
  word = (word ^ (word >> 29)) * 0xBB67AE8584CAA73B;  // fraction of sqrt(3)
  return word ^ (word >> 32);
}

/// The x >= 0 that a standard normal deviate exceeds with probability `tail`, in (0, 1/2].
double normal_from_tail(double tail);

/// Key of 128 bits. Word n is scramble(scramble(n * odd + add) ^ flip): the two keys keep streams apart even where
/// their counters run into each other after the first step.
class RandomStream {
 public:
  constexpr RandomStream(std::uint64_t seed, std::uint64_t stream)
      : add_(scramble(scramble(seed + 0x3C6EF372FE94F82B) + stream)),
        flip_(scramble(scramble(stream + 0xA54FF53A5F1D36F1) + seed)) {}

  /// An independent stream for one value of an index.
  constexpr RandomStream child(std::uint64_t index) const { return {word(2 * index), word(2 * index + 1)}; }

  constexpr std::uint64_t word(std::uint64_t index) const {
    return scramble(scramble(index * 0x9E3779B97F4A7C15 + add_) ^ flip_);
  }

  /// In (0, 1), a multiple of 2^-53.
  constexpr double unit(std::uint64_t index) const { return (static_cast<double>(word(index) >> 12) + 0.5) * 0x1p-52; }
  /// In (-1, 1), a multiple of 2^-52.
  constexpr double symmetric(std::uint64_t index) const { return 2 * unit(index) - 1; }
  /// -1 or 1.
  constexpr double sign(std::uint64_t index) const { return word(index) >> 63 ? -1 : 1; }
  /// Below `count`, each value alike to 2^-32 (count < 2^32).
  constexpr std::int64_t below(std::uint64_t index, std::int64_t count) const {
    return static_cast<std::int64_t>((word(index) >> 32) * static_cast<std::uint64_t>(count) >> 32);
  }
  /// N(0, 1), by inversion: the top bit is the sign, the others the tail probability.
  double normal(std::uint64_t index) const;
  /// values[n] = normal(n), several times as fast.
  void fill_normal(std::span<double> values) const;

 private:
  std::uint64_t add_;
  std::uint64_t flip_;
};

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// The models' own dropout mask: Philox4x32-10 (Salmon et al. 2011) with key = seed and counter
// (j / 4, i, b * Hq + h, offset); word j % 4 below (1 - p) 2^32 keeps (b, h, i, j). Written apart from the
// oracle's on purpose.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace attest {

inline std::array<std::uint32_t, 4> philox_words(std::array<std::uint32_t, 4> counter, std::uint64_t seed) {
  auto k0 = static_cast<std::uint32_t>(seed);
  auto k1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ k0, static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ k1, static_cast<std::uint32_t>(product0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

/// The keep decisions of one row (b, h, i): keep(j) for rising j costs one Philox block per four keys.
class DropoutRow {
 public:
  DropoutRow(double p, std::uint64_t seed, std::uint64_t offset, std::int64_t head_index, std::int64_t i)
      : threshold_(static_cast<std::uint64_t>(std::ceil((1.0 - p) * 4294967296.0))),
        seed_(seed), counter_{0, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(head_index),
                              static_cast<std::uint32_t>(offset)} {}

  bool keep(std::int64_t j) {
    if (j / 4 != block_) {
      block_ = j / 4;
      counter_[0] = static_cast<std::uint32_t>(block_);
      words_ = philox_words(counter_, seed_);
    }
    return words_[static_cast<std::size_t>(j % 4)] < threshold_;
  }

 private:
  std::uint64_t threshold_;
  std::uint64_t seed_;
  std::array<std::uint32_t, 4> counter_;
  std::array<std::uint32_t, 4> words_{};
  std::int64_t block_ = -1;
};

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// Tensor values without a storage layout: only the real tokens, all sequences end to end, in double.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace attest {

/// Row-major [tokens, heads, width]; token t = (sum of earlier lengths) + i.
struct Values {
  std::int64_t tokens = 0;
  std::int64_t heads = 0;
  std::int64_t width = 0;
  std::vector<double> data;  // [tokens, heads, width]

  Values() = default;
  Values(std::int64_t tokens_, std::int64_t heads_, std::int64_t width_, double value = 0)
      : tokens(tokens_), heads(heads_), width(width_),
        data(static_cast<std::size_t>(tokens_ * heads_ * width_), value) {}

  bool empty() const { return data.empty(); }
  double& at(std::int64_t token, std::int64_t head, std::int64_t column) {
    return data[static_cast<std::size_t>((token * heads + head) * width + column)];
  }
  double at(std::int64_t token, std::int64_t head, std::int64_t column) const {
    return data[static_cast<std::size_t>((token * heads + head) * width + column)];
  }
  std::span<double> row(std::int64_t token, std::int64_t head) {
    return {data.data() + (token * heads + head) * width, static_cast<std::size_t>(width)};
  }
  std::span<const double> row(std::int64_t token, std::int64_t head) const {
    return {data.data() + (token * heads + head) * width, static_cast<std::size_t>(width)};
  }
};

/// Offsets of the sequences in token order: [B + 1], first 0, last the sum.
std::vector<std::int64_t> token_offsets(std::span<const std::int64_t> lengths);

}  // namespace attest

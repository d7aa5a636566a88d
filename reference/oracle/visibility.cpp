// SPDX-License-Identifier: Apache-2.0
// The mask predicate and the dropout keep decision of the oracle.
#include "reference/oracle/visibility.h"

#include <algorithm>
#include <cmath>

namespace attest {
namespace {

constexpr std::int64_t kFar = std::int64_t{1} << 60;  // further than any key; sums of two stay in range

std::int64_t diagonal_shift(const Problem& problem, std::int64_t b, Causal alignment) {
  return alignment == Causal::top_left ? 0 : problem.seq_k[b] - problem.seq_q[b];
}

// A word below (1 - p) 2^32 is below the next integer too. 2^32 keeps everything.
std::uint64_t keep_threshold(double p) { return static_cast<std::uint64_t>(std::ceil((1 - p) * 0x1p32)); }

PhiloxBlock dropout_words(const Dropout& dropout, std::int64_t head, std::int64_t i, std::int64_t column_block) {
  const PhiloxBlock counter = {{static_cast<std::uint32_t>(column_block), static_cast<std::uint32_t>(i),
                                static_cast<std::uint32_t>(head), static_cast<std::uint32_t>(dropout.offset)}};
  return philox4x32_10(counter, dropout.seed);
}

}  // namespace

KeyRange key_range(const Problem& problem, std::int64_t b, std::int64_t i) {
  KeyRange range = {0, problem.seq_k[b]};
  if (problem.causal != Causal::none) {
    range.last = std::min(range.last, i + diagonal_shift(problem, b, problem.causal) + 1);
  }
  if (problem.window) {
    Causal alignment = problem.window->alignment;
    if (alignment == Causal::none) alignment = problem.causal;  // still none: bottom-right
    const std::int64_t center = i + diagonal_shift(problem, b, alignment);
    const std::int64_t left = std::min(problem.window->left, kFar);
    const std::int64_t right = std::min(problem.window->right, kFar);
    if (left >= 0) range.first = std::max(range.first, center - left);
    if (right >= 0) range.last = std::min(range.last, center + right + 1);
  }
  return range;
}

bool visible(const Problem& problem, const Inputs& inputs, std::int64_t b, std::int64_t h, std::int64_t i,
             std::int64_t j) {
  const KeyRange range = key_range(problem, b, i);
  if (j < range.first || j >= range.last) return false;
  if (problem.mask && inputs.mask.at(b, h, i, j) == 0) return false;
  if (problem.block && inputs.block_mask.at(b, h, i / problem.block->rows, j / problem.block->cols) == 0) return false;
  return true;
}

bool kept(const Problem& problem, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  if (!problem.dropout) return true;
  const PhiloxBlock words = dropout_words(*problem.dropout, b * problem.heads_q + h, i, j / 4);
  return words.word[j % 4] < keep_threshold(problem.effective_dropout());
}

void kept_row(const Problem& problem, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t first,
              std::span<double> keep) {
  const std::uint64_t threshold = keep_threshold(problem.effective_dropout());
  const std::int64_t last = first + static_cast<std::int64_t>(keep.size());
  for (std::int64_t j = first; j < last;) {
    const PhiloxBlock words = dropout_words(*problem.dropout, b * problem.heads_q + h, i, j / 4);
    const std::int64_t end = std::min(last, (j / 4 + 1) * 4);
    for (; j < end; ++j) keep[j - first] = words.word[j % 4] < threshold ? 1.0 : 0.0;
  }
}

PhiloxBlock philox4x32_10(PhiloxBlock counter, std::uint64_t key) {
  std::uint32_t key_low = static_cast<std::uint32_t>(key);
  std::uint32_t key_high = static_cast<std::uint32_t>(key >> 32);
  PhiloxBlock x = counter;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * x.word[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * x.word[2];
    x = {{static_cast<std::uint32_t>(product1 >> 32) ^ x.word[1] ^ key_low, static_cast<std::uint32_t>(product1),
          static_cast<std::uint32_t>(product0 >> 32) ^ x.word[3] ^ key_high, static_cast<std::uint32_t>(product0)}};
    key_low += 0x9E3779B9;
    key_high += 0xBB67AE85;
  }
  return x;
}

}  // namespace attest

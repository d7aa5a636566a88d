// SPDX-License-Identifier: Apache-2.0
// What may happen to a score between the product and the softmax: softcap, bias, ALiBi, explicit and block mask,
// and the dropout of its probability.
#pragma once

#include "cuda/elements.cuh"
#include "cuda/sequence.cuh"

namespace attest::cuda {

__device__ inline std::int64_t operand_index(const OperandView& operand, int b, int h, std::int64_t i, std::int64_t j) {
  return b * operand.batch + h * operand.head + i * operand.query + j * operand.key;
}

/// Explicit and block mask only; the range of keys is Sequence's.
__device__ inline bool mask_shows(const Arguments& args, int b, int h, int i, int j) {
  if (args.mask.data != nullptr) {
    if (static_cast<const std::uint8_t*>(args.mask.data)[operand_index(args.mask, b, h, i, j)] == 0) return false;
  }
  if (args.block_mask.data != nullptr) {
    const std::int64_t at = operand_index(args.block_mask, b, h, i / args.block_rows, j / args.block_cols);
    if (static_cast<const std::uint8_t*>(args.block_mask.data)[at] == 0) return false;
  }
  return true;
}

__device__ inline bool visible(const Arguments& args, const Sequence& s, int h, int i, int j) {
  return i < s.sq && j >= s.first_key(i) && j < s.last_key(i) && mask_shows(args, s.b, h, i, j);
}

/// A bias of -inf hides a key that the masks show.
__device__ inline bool hidden_by_bias(const Arguments& args, const Sequence& s, int h, int i, int j) {
  if (args.bias.data == nullptr) return false;
  return load_element(args.bias_dtype, args.bias.data, operand_index(args.bias, s.b, h, i, j)) == -INFINITY;
}

struct Score {
  float value;       // natural domain, before the mask
  float derivative;  // of the score by scale * <q, k>: 1 - tanh^2 where softcap is on
};

/// The product alone, rounded. Contracted with the subtraction of LSE, the backward's P would not be that of the scores
/// that LSE was made of: off by half an ulp of the score in the exponent.
__device__ inline float scaled(float dot, float scale) { return __fmul_rn(dot, scale); }

/// `dot` is <q_i, k_j>. Only for (i, j) inside the sequence.
__device__ inline Score score_of(const Arguments& args, const Sequence& s, int h, int i, int j, float dot) {
  Score score{scaled(dot, args.scale), 1.0f};
  if (args.softcap != 0) {
    const float x = score.value / args.softcap;
    score.value = args.softcap * tanhf(x);
    // 1 - tanh^2 as 1 / cosh^2, which keeps its relative accuracy where the cap saturates.
    const float e = expf(-2.0f * fabsf(x));
    score.derivative = 4.0f * e / ((1.0f + e) * (1.0f + e));
  }
  if (args.bias.data != nullptr) {
    score.value += load_element(args.bias_dtype, args.bias.data, operand_index(args.bias, s.b, h, i, j));
  }
  if (args.alibi_slopes != nullptr) {
    const int distance = abs(i + s.sk - s.sq - j);
    score.value -= args.alibi_slopes[h] * static_cast<float>(distance);
  }
  return score;
}

/// Philox4x32-10 (Salmon et al. 2011): four random words of a 128-bit counter under a 64-bit key.
__device__ inline uint4 philox(uint4 counter, std::uint64_t key) {
  constexpr unsigned kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
  constexpr unsigned kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  unsigned key0 = static_cast<unsigned>(key);
  unsigned key1 = static_cast<unsigned>(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned high0 = __umulhi(kMultiplier0, counter.x), low0 = kMultiplier0 * counter.x;
    const unsigned high1 = __umulhi(kMultiplier1, counter.z), low1 = kMultiplier1 * counter.z;
    counter = make_uint4(high1 ^ counter.y ^ key0, low1, high0 ^ counter.w ^ key1, low0);
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

/// The random words of keys 4 * j4 ... 4 * j4 + 3 in row i; the mapping of the contract, free of any tiling.
__device__ inline uint4 dropout_words(const Arguments& args, int b, int h, int i, int j4) {
  const auto sequence_and_head = static_cast<unsigned>(b) * args.heads_q + h;
  return philox(make_uint4(j4, i, sequence_and_head, args.dropout_offset), args.dropout_seed);
}

/// True where dropout keeps (b, h, i, j).
__device__ inline bool keeps(const Arguments& args, int b, int h, int i, int j) {
  const uint4 words = dropout_words(args, b, h, i, j / 4);
  const unsigned word = j % 4 == 0 ? words.x : j % 4 == 1 ? words.y : j % 4 == 2 ? words.z : words.w;
  return word < args.keep_below;
}

}  // namespace attest::cuda

// SPDX-License-Identifier: Apache-2.0
// cuda-standard: attention with S and P in memory (FlashAttention, Algorithm 0, and its backward, Algorithm 3), float32,
// every feature. The baseline that the others are compared with: memory is O(Sq Sk).
//
// In the work arrays a hidden pair holds kHidden (-0); what is seen is never -0.
#include "cuda/flash_f32.cuh"
#include "cuda/launch.h"
#include "cuda/standard.h"
#include "cuda/tiled_product.cuh"

namespace attest::cuda {
namespace {

using f32::kWholeWarp;

/// Where a block is: a tile of one sequence and one head, of the query side or the key side.
struct ProductPlace {
  Sequence s;
  int head;
  int m0;
  int n0;
};

__device__ ProductPlace place_product(const Arguments& args, int heads, int most_m, int most_n) {
  const int tiles_m = (most_m + kProductTile - 1) / kProductTile;
  const int tiles_n = (most_n + kProductTile - 1) / kProductTile;
  std::int64_t block = blockIdx.x;
  const int n0 = static_cast<int>(block % tiles_n) * kProductTile;
  block /= tiles_n;
  const int m0 = static_cast<int>(block % tiles_m) * kProductTile;
  block /= tiles_m;
  return {sequence_of(args, static_cast<int>(block / heads)), static_cast<int>(block % heads), m0, n0};
}

/// Index of (sequence, head, i, 0) in a work array of scores.
__device__ std::int64_t score_row(const Arguments& args, const Sequence& s, int h, int i) {
  return ((static_cast<std::int64_t>(s.b) * args.heads_q + h) * args.max_q + i) * args.max_k;
}

__device__ float query_element(int dtype, const TensorView& tensor, const Sequence& s, int h,
                               int i, std::int64_t column) {
  return load_element(dtype, tensor.data, element_offset(tensor, s.b, s.row_q + i, h) + column);
}

__device__ float key_element(const Arguments& args, const TensorView& tensor, const Sequence& s, int head, int j,
                             std::int64_t column) {
  return load_element(args.dtype, tensor.data, key_offset(args, tensor, s, j, head) + column);
}

/// S = softcapped, biased and masked scores; hidden ones are -inf. With an LSE, P = exp(S - LSE) instead, kHidden where
/// hidden, and through `derivative` that of the softcap.
template <bool kNormalise>
__global__ void __launch_bounds__(kProductThreads)
    standard_scores_kernel(const Arguments args, float* scores, float* derivative) {
  const auto [s, h, m0, n0] = place_product(args, args.heads_q, args.max_q, args.max_k);
  if (m0 >= s.sq || n0 >= s.sk) return;
  const Sequence sequence = s;
  const int head = h, kv_head = h / args.group;
  tiled_product<Along::k, Along::k>(
      {s.sq, s.sk, args.dim}, m0, n0,
      [&](int i, std::int64_t c) { return query_element(args.dtype, args.q, sequence, head, i, c); },
      [&](int j, std::int64_t c) { return key_element(args, args.k, sequence, kv_head, j, c); },
      [&](int i, int j, float dot) {
        const std::int64_t at = score_row(args, sequence, head, i) + j;
        Score score{-INFINITY, 0.0f};
        if (visible(args, sequence, head, i, j)) score = score_of(args, sequence, head, i, j, dot);
        if constexpr (kNormalise) {
          const float lse = *lse_pointer(args.lse, sequence, head, i);
          const bool hidden = score.value == -INFINITY || lse == -INFINITY;
          scores[at] = hidden ? kHidden : expf(score.value - lse);
          derivative[at] = score.derivative;
        } else {
          scores[at] = score.value;
        }
      });
}

/// P of a row in place of its scores, dropped where dropout says so; LSE. One warp a row.
__global__ void __launch_bounds__(f32::kThreads) standard_softmax_kernel(const Arguments args, float* scores) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * f32::kWarps + threadIdx.x / 32;
  if (index >= static_cast<std::int64_t>(args.batch) * args.heads_q * args.max_q) return;
  const int i = static_cast<int>(index % args.max_q);
  const int h = static_cast<int>(index / args.max_q % args.heads_q);
  const Sequence s = sequence_of(args, static_cast<int>(index / args.max_q / args.heads_q));
  if (i >= s.sq) return;
  const int lane = threadIdx.x % 32;
  float* const row = scores + score_row(args, s, h, i);
  float max = -INFINITY;
  for (int j = lane; j < s.sk; j += 32) max = fmaxf(max, row[j]);
  max = f32::warp_max(max);
  const float safe_max = max == -INFINITY ? 0.0f : max;
  float sum = 0;
  for (int j = lane; j < s.sk; j += 32) sum += expf(row[j] - safe_max);
  sum = f32::warp_sum(sum);
  const float factor = sum == 0 ? 0.0f : 1.0f / sum;
  for (int j = lane; j < s.sk; j += 32) {
    const float score = row[j];
    const bool dropped = args.has_dropout && !keeps(args, s.b, h, i, j);
    row[j] = score == -INFINITY ? kHidden : dropped ? 0.0f : expf(score - safe_max) * factor;
  }
  if (lane == 0) *lse_pointer(args.lse, s, h, i) = sum == 0 ? -INFINITY : max + logf(sum);
}

/// O = P V.
__global__ void __launch_bounds__(kProductThreads) standard_output_kernel(const Arguments args, const float* p) {
  const auto [s, h, m0, n0] = place_product(args, args.heads_q, args.max_q, args.dim_v);
  if (m0 >= s.sq) return;
  const Sequence sequence = s;
  const int head = h, kv_head = h / args.group;
  tiled_product<Along::k, Along::rows>(
      {s.sq, args.dim_v, s.sk}, m0, n0, [&](int i, std::int64_t j) { return p[score_row(args, sequence, head, i) + j]; },
      [&](int c, std::int64_t j) { return key_element(args, args.v, sequence, kv_head, static_cast<int>(j), c); },
      [&](int i, int c, float sum) {
        store_element(args.out_dtype, args.o.data,
                      element_offset(args.o, sequence.b, sequence.row_q + i, head) + c, sum * args.keep_scale);
      });
}

/// dS = P (dP - delta) times the softcap's derivative, in the place of that derivative; P becomes P after dropout.
__global__ void __launch_bounds__(kProductThreads)
    standard_ds_kernel(const Arguments args, float* p, float* ds, const float* delta) {
  const auto [s, h, m0, n0] = place_product(args, args.heads_q, args.max_q, args.max_k);
  if (m0 >= s.sq || n0 >= s.sk) return;
  const Sequence sequence = s;
  const int head = h, kv_head = h / args.group;
  tiled_product<Along::k, Along::k>(
      {s.sq, s.sk, args.dim_v}, m0, n0,
      [&](int i, std::int64_t c) { return query_element(args.dtype, args.d_o, sequence, head, i, c); },
      [&](int j, std::int64_t c) { return key_element(args, args.v, sequence, kv_head, j, c); },
      [&](int i, int j, float dp) {
        const std::int64_t at = score_row(args, sequence, head, i) + j;
        const float weight = p[at];
        if (is_hidden(weight)) {
          ds[at] = kHidden;
          return;
        }
        const bool kept = !args.has_dropout || keeps(args, sequence.b, head, i, j);
        const float gradient =
            weight * ((kept ? dp * args.keep_scale : 0.0f) - delta[work_row(args, sequence, head, i)]);
        ds[at] = gradient * ds[at] + 0.0f;  // -0 would say hidden
        if (!kept) p[at] = 0.0f;
      });
}

/// dQ = scale dS K.
__global__ void __launch_bounds__(kProductThreads) standard_dq_kernel(const Arguments args, const float* ds) {
  const auto [s, h, m0, n0] = place_product(args, args.heads_q, args.max_q, args.dim);
  if (m0 >= s.sq) return;
  const Sequence sequence = s;
  const int head = h, kv_head = h / args.group;
  tiled_product<Along::k, Along::rows>(
      {s.sq, args.dim, s.sk}, m0, n0, [&](int i, std::int64_t j) { return ds[score_row(args, sequence, head, i) + j]; },
      [&](int c, std::int64_t j) { return key_element(args, args.k, sequence, kv_head, static_cast<int>(j), c); },
      [&](int i, int c, float sum) {
        store_element(args.out_dtype, args.dq.data,
                      element_offset(args.dq, sequence.b, sequence.row_q + i, head) + c, sum * args.scale);
      });
}

/// out = factor W^T X, summed over the group's heads: dV of P and dO, dK of dS and Q.
__global__ void __launch_bounds__(kProductThreads)
    standard_key_gradient_kernel(const Arguments args, const float* weights, const TensorView x, const TensorView out,
                                 int width, float factor) {
  const auto [s, kv_head, m0, n0] = place_product(args, args.heads_kv, args.max_k, width);
  if (m0 >= s.sk) return;
  const Sequence sequence = s;
  const int first_head = kv_head * args.group, head = kv_head;
  const int sq = max(1, s.sq);
  tiled_product<Along::rows, Along::rows>(
      {s.sk, width, static_cast<std::int64_t>(s.sq) * args.group}, m0, n0,
      [&](int j, std::int64_t k) {
        const int h = first_head + static_cast<int>(k / sq), i = static_cast<int>(k % sq);
        return weights[score_row(args, sequence, h, i) + j];
      },
      [&](int c, std::int64_t k) {
        const int h = first_head + static_cast<int>(k / sq), i = static_cast<int>(k % sq);
        return query_element(args.dtype, x, sequence, h, i, c);
      },
      [&](int j, int c, float sum) {
        store_element(args.out_dtype, out.data, element_offset(out, sequence.b, sequence.row_k + j, head) + c,
                      sum * factor);
      });
}

std::int64_t product_blocks(const Arguments& args, int heads, int most_m, int most_n) {
  const auto tiles = [](int length) { return (static_cast<std::int64_t>(length) + kProductTile - 1) / kProductTile; };
  return static_cast<std::int64_t>(args.batch) * heads * tiles(most_m) * tiles(most_n);
}

}  // namespace

void launch_standard_forward(const Arguments& args, float* p, cudaStream_t stream) {
  launch_kernel(standard_scores_kernel<false>, "standard_scores",
                product_blocks(args, args.heads_q, args.max_q, args.max_k), kProductThreads, 0, stream, args, p, p);
  const std::int64_t rows = static_cast<std::int64_t>(args.batch) * args.heads_q * args.max_q;
  launch_kernel(standard_softmax_kernel, "standard_softmax", (rows + f32::kWarps - 1) / f32::kWarps, f32::kThreads, 0,
                stream, args, p);
  launch_kernel(standard_output_kernel, "standard_output", product_blocks(args, args.heads_q, args.max_q, args.dim_v),
                kProductThreads, 0, stream, args, static_cast<const float*>(p));
}

void launch_standard_backward(const Arguments& args, float* p, float* ds, const float* delta, cudaStream_t stream) {
  const std::int64_t pairs = product_blocks(args, args.heads_q, args.max_q, args.max_k);
  launch_kernel(standard_scores_kernel<true>, "standard_scores", pairs, kProductThreads, 0, stream, args, p, ds);
  launch_kernel(standard_ds_kernel, "standard_ds", pairs, kProductThreads, 0, stream, args, p, ds, delta);
  launch_kernel(standard_dq_kernel, "standard_dq", product_blocks(args, args.heads_q, args.max_q, args.dim),
                kProductThreads, 0, stream, args, static_cast<const float*>(ds));
  launch_kernel(standard_key_gradient_kernel, "standard_dk",
                product_blocks(args, args.heads_kv, args.max_k, args.dim), kProductThreads, 0, stream, args,
                static_cast<const float*>(ds), args.q, args.dk, args.dim, args.scale);
  launch_kernel(standard_key_gradient_kernel, "standard_dv",
                product_blocks(args, args.heads_kv, args.max_k, args.dim_v), kProductThreads, 0, stream, args,
                static_cast<const float*>(p), args.d_o, args.dv, args.dim_v, args.keep_scale);
}

}  // namespace attest::cuda

// SPDX-License-Identifier: Apache-2.0
// cuda-flash-f32, backward: probabilities are recomputed from LSE. One kernel walks the keys of 32 queries for dQ,
// one walks the queries of 32 keys, over all heads of the group, for dK and dV; neither needs atomics.
#include "cuda/flash_f32.cuh"
#include "cuda/flash_f32.h"
#include "cuda/launch.h"

namespace attest::cuda {
namespace f32 {
namespace {

/// P after dropout and dS of one (i, j); zero and not seen where masked.
struct Weights {
  float p = 0;
  float ds = 0;      // gradient of scale * <q, k>
  float d_bias = 0;  // gradient of the score itself: the bias is added after the softcap
  bool seen = false;
};

/// `dot` is <q_i, k_j>, `dp` is <dO_i, v_j>.
__device__ Weights weights_of(const Arguments& args, const Sequence& s, int h, int i, int j, float dot, float dp,
                              float lse, float delta) {
  Weights w;
  if (lse == -INFINITY || !visible(args, s, h, i, j)) return w;
  const Score score = score_of(args, s, h, i, j, dot);
  if (score.value == -INFINITY) return w;
  w.seen = true;
  const float p = expf(score.value - lse);
  const bool kept = !args.has_dropout || keeps(args, s.b, h, i, j);
  w.p = kept ? p : 0;
  w.d_bias = p * ((kept ? dp * args.keep_scale : 0.0f) - delta);
  w.ds = w.d_bias * score.derivative;
  return w;
}

__global__ void __launch_bounds__(kThreads) flash_f32_dq_kernel(const Arguments args, const float* delta_rows) {
  __shared__ Chunk row_chunk;         // [32 rows, 32] of Q or dO
  __shared__ Chunk key_chunk;         // [32 keys, 32] of K or V
  extern __shared__ float dq_tile[];  // [32 rows, D]

  const auto [s, h, i0] = place_tile(args, args.max_q, args.heads_q);
  if (i0 >= s.sq) return;
  const int warp_row = (threadIdx.x / 32) * kRowsPerWarp;
  const int lane = threadIdx.x % 32;
  for (int at = threadIdx.x; at < kTile * args.dim; at += kThreads) dq_tile[at] = 0;

  float lse[kRowsPerWarp], delta[kRowsPerWarp];
  for (int r = 0; r < kRowsPerWarp; ++r) {
    const int i = min(i0 + warp_row + r, s.sq - 1);
    lse[r] = *lse_pointer(args.lse, s, h, i);
    delta[r] = delta_rows[work_row(args, s, h, i)];
  }

  const int last_row = min(i0 + kTile, s.sq) - 1;
  for (int j0 = s.first_key(i0) / kTile * kTile; j0 < s.last_key(last_row); j0 += kTile) {
    float dot[kRowsPerWarp] = {}, dp[kRowsPerWarp] = {};
    for (int c = 0; c < max(args.dim, args.dim_v); c += kTile) {
      if (c < args.dim) {
        __syncthreads();
        load_chunk(row_chunk, args.dtype, args.q, s, s.row_q, s.sq, h, i0, c, args.dim);
        load_chunk(key_chunk, args.dtype, args.k, s, s.row_k, s.sk, h / args.group, j0, c, args.dim);
        __syncthreads();
        multiply_rows_by_lanes(dot, row_chunk, key_chunk);
      }
      if (c < args.dim_v) {
        __syncthreads();
        load_chunk(row_chunk, args.dtype, args.d_o, s, s.row_q, s.sq, h, i0, c, args.dim_v);
        load_chunk(key_chunk, args.dtype, args.v, s, s.row_k, s.sk, h / args.group, j0, c, args.dim_v);
        __syncthreads();
        multiply_rows_by_lanes(dp, row_chunk, key_chunk);
      }
    }
    Weights w[kRowsPerWarp];
    unsigned seen[kRowsPerWarp];
    for (int r = 0; r < kRowsPerWarp; ++r) {
      w[r] = weights_of(args, s, h, i0 + warp_row + r, j0 + lane, dot[r], dp[r], lse[r], delta[r]);
      seen[r] = __ballot_sync(kWholeWarp, w[r].seen);
    }
    for (int c = 0; c < args.dim; c += kTile) {
      __syncthreads();
      load_chunk(key_chunk, args.dtype, args.k, s, s.row_k, s.sk, h / args.group, j0, c, args.dim);
      __syncthreads();
      for (int r = 0; r < kRowsPerWarp; ++r) {
        float* const dq = dq_tile + (warp_row + r) * args.dim + c + lane;
        const float after = add_seen_rows(c + lane < args.dim ? *dq : 0, w[r].ds, seen[r], key_chunk);
        if (c + lane < args.dim) *dq = after;
      }
    }
  }
  __syncthreads();
  store_rows(dq_tile, args.dim, args.out_dtype, args.dq, s, s.row_q, s.sq, h, i0, args.scale);
}

__global__ void __launch_bounds__(kThreads) flash_f32_dkdv_kernel(const Arguments args, const float* delta_rows) {
  __shared__ Chunk key_chunk;         // [32 keys, 32] of K or V
  __shared__ Chunk row_chunk;         // [32 rows, 32] of Q or dO
  extern __shared__ float dk_tile[];  // [32 keys, D], then dV [32 keys, Dv]
  float* const dv_tile = dk_tile + kTile * args.dim;

  const auto [s, kv_head, j0] = place_tile(args, args.max_k, args.heads_kv);
  if (j0 >= s.sk) return;
  const int warp_key = (threadIdx.x / 32) * kRowsPerWarp;
  const int lane = threadIdx.x % 32;
  for (int at = threadIdx.x; at < kTile * (args.dim + args.dim_v); at += kThreads) dk_tile[at] = 0;

  for (int h = kv_head * args.group; h < (kv_head + 1) * args.group; ++h) {
    for (int i0 = 0; i0 < s.sq; i0 += kTile) {
      const int last_row = min(i0 + kTile, s.sq) - 1;
      if (s.first_key(i0) >= j0 + kTile || s.last_key(last_row) <= j0) continue;
      float dot[kRowsPerWarp] = {}, dp[kRowsPerWarp] = {};
      for (int c = 0; c < max(args.dim, args.dim_v); c += kTile) {
        if (c < args.dim) {
          __syncthreads();
          load_chunk(key_chunk, args.dtype, args.k, s, s.row_k, s.sk, kv_head, j0, c, args.dim);
          load_chunk(row_chunk, args.dtype, args.q, s, s.row_q, s.sq, h, i0, c, args.dim);
          __syncthreads();
          multiply_rows_by_lanes(dot, key_chunk, row_chunk);
        }
        if (c < args.dim_v) {
          __syncthreads();
          load_chunk(key_chunk, args.dtype, args.v, s, s.row_k, s.sk, kv_head, j0, c, args.dim_v);
          load_chunk(row_chunk, args.dtype, args.d_o, s, s.row_q, s.sq, h, i0, c, args.dim_v);
          __syncthreads();
          multiply_rows_by_lanes(dp, key_chunk, row_chunk);
        }
      }
      const int i = min(i0 + lane, s.sq - 1);
      const float lse = *lse_pointer(args.lse, s, h, i);
      const float delta = delta_rows[work_row(args, s, h, i)];
      Weights w[kRowsPerWarp];
      unsigned seen[kRowsPerWarp];
      for (int r = 0; r < kRowsPerWarp; ++r) {
        w[r] = weights_of(args, s, h, i0 + lane, j0 + warp_key + r, dot[r], dp[r], lse, delta);
        seen[r] = __ballot_sync(kWholeWarp, w[r].seen);
      }
      for (int c = 0; c < max(args.dim, args.dim_v); c += kTile) {
        __syncthreads();
        load_chunk(row_chunk, args.dtype, args.d_o, s, s.row_q, s.sq, h, i0, c, args.dim_v);
        load_chunk(key_chunk, args.dtype, args.q, s, s.row_q, s.sq, h, i0, c, args.dim);
        __syncthreads();
        for (int r = 0; r < kRowsPerWarp; ++r) {
          float* const dk = dk_tile + (warp_key + r) * args.dim + c + lane;
          float* const dv = dv_tile + (warp_key + r) * args.dim_v + c + lane;
          const float dk_after = add_seen_rows(c + lane < args.dim ? *dk : 0, w[r].ds, seen[r], key_chunk);
          const float dv_after = add_seen_rows(c + lane < args.dim_v ? *dv : 0, w[r].p, seen[r], row_chunk);
          if (c + lane < args.dim) *dk = dk_after;
          if (c + lane < args.dim_v) *dv = dv_after;
        }
      }
    }
  }
  __syncthreads();
  store_rows(dk_tile, args.dim, args.out_dtype, args.dk, s, s.row_k, s.sk, kv_head, j0, args.scale);
  store_rows(dv_tile, args.dim_v, args.out_dtype, args.dv, s, s.row_k, s.sk, kv_head, j0, args.keep_scale);
}

__global__ void __launch_bounds__(kThreads) row_delta_kernel(const Arguments args, float* delta_rows) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (row >= static_cast<std::int64_t>(args.batch) * args.heads_q * args.max_q) return;
  const int i = static_cast<int>(row % args.max_q);
  const int h = static_cast<int>(row / args.max_q % args.heads_q);
  const Sequence s = sequence_of(args, static_cast<int>(row / args.max_q / args.heads_q));
  if (i >= s.sq) return;
  const std::int64_t o = element_offset(args.o, s.b, s.row_q + i, h);
  const std::int64_t d_o = element_offset(args.d_o, s.b, s.row_q + i, h);
  float sum = 0;
  for (int c = lane; c < args.dim_v; c += 32) {
    sum = fmaf(load_element(args.out_dtype, args.o.data, o + c), load_element(args.dtype, args.d_o.data, d_o + c), sum);
  }
  sum = warp_sum(sum);
  if (args.d_lse.data != nullptr) sum -= *lse_pointer(args.d_lse, s, h, i);
  if (lane == 0) delta_rows[work_row(args, s, h, i)] = sum;
}

__device__ float dot_of(int dtype, const TensorView& x, std::int64_t x_at, const TensorView& y, std::int64_t y_at,
                        int width) {
  float sum = 0;
  for (int c = 0; c < width; ++c) {
    sum = fmaf(load_element(dtype, x.data, x_at + c), load_element(dtype, y.data, y_at + c), sum);
  }
  return sum;
}

/// The extents of d_bias: 1 where its stride is 0. Lanes share the (b, h, i, j) that one element stands for.
__global__ void __launch_bounds__(kThreads) bias_gradient_kernel(const Arguments args, const float* delta_rows) {
  const OperandView& d_bias = args.d_bias;
  const std::int64_t all_b = args.batch, all_h = args.heads_q, all_i = args.max_q, all_j = args.max_k;
  const std::int64_t own_b = d_bias.batch != 0 ? all_b : 1, own_h = d_bias.head != 0 ? all_h : 1;
  const std::int64_t own_i = d_bias.query != 0 ? all_i : 1, own_j = d_bias.key != 0 ? all_j : 1;
  std::int64_t element = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (element >= own_b * own_h * own_i * own_j) return;
  const std::int64_t j_own = element % own_j, i_own = element / own_j % own_i;
  const std::int64_t h_own = element / own_j / own_i % own_h, b_own = element / own_j / own_i / own_h;

  const std::int64_t sum_b = all_b / own_b, sum_h = all_h / own_h, sum_i = all_i / own_i, sum_j = all_j / own_j;
  float sum = 0;
  for (std::int64_t term = threadIdx.x % 32; term < sum_b * sum_h * sum_i * sum_j; term += 32) {
    const int j = static_cast<int>(j_own + term % sum_j);
    const int i = static_cast<int>(i_own + term / sum_j % sum_i);
    const int h = static_cast<int>(h_own + term / sum_j / sum_i % sum_h);
    const Sequence s = sequence_of(args, static_cast<int>(b_own + term / sum_j / sum_i / sum_h));
    if (!visible(args, s, h, i, j)) continue;
    const std::int64_t key = s.row_k + j, row = s.row_q + i;
    const int kv_head = h / args.group;
    const float dot = dot_of(args.dtype, args.q, element_offset(args.q, s.b, row, h), args.k,
                             element_offset(args.k, s.b, key, kv_head), args.dim);
    const float dp = dot_of(args.dtype, args.d_o, element_offset(args.d_o, s.b, row, h), args.v,
                            element_offset(args.v, s.b, key, kv_head), args.dim_v);
    const Weights w =
        weights_of(args, s, h, i, j, dot, dp, *lse_pointer(args.lse, s, h, i), delta_rows[work_row(args, s, h, i)]);
    sum += w.d_bias;
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) {
    static_cast<float*>(
        d_bias.data)[operand_index(d_bias, static_cast<int>(b_own), static_cast<int>(h_own), i_own, j_own)] = sum;
  }
}

}  // namespace
}  // namespace f32

void launch_row_delta(const Arguments& args, float* delta, cudaStream_t stream) {
  const std::int64_t rows = static_cast<std::int64_t>(args.batch) * args.heads_q * args.max_q;
  launch_kernel(f32::row_delta_kernel, "row_delta", (rows + f32::kWarps - 1) / f32::kWarps, f32::kThreads, 0, stream,
                args, delta);
}

void launch_bias_gradient(const Arguments& args, const float* delta, cudaStream_t stream) {
  const OperandView& d_bias = args.d_bias;
  const std::int64_t elements = static_cast<std::int64_t>(d_bias.batch != 0 ? args.batch : 1) *
                                (d_bias.head != 0 ? args.heads_q : 1) * (d_bias.query != 0 ? args.max_q : 1) *
                                (d_bias.key != 0 ? args.max_k : 1);
  launch_kernel(f32::bias_gradient_kernel, "bias_gradient", (elements + f32::kWarps - 1) / f32::kWarps, f32::kThreads,
                0, stream, args, delta);
}

void launch_flash_f32_backward(const Arguments& args, const float* delta, cudaStream_t stream) {
  const std::int64_t q_tiles = (args.max_q + f32::kTile - 1) / f32::kTile;
  const std::int64_t k_tiles = (args.max_k + f32::kTile - 1) / f32::kTile;
  const int row_bytes = f32::kTile * static_cast<int>(sizeof(float));
  launch_kernel(f32::flash_f32_dq_kernel, "flash_f32_dq", q_tiles * args.batch * args.heads_q, f32::kThreads,
                row_bytes * args.dim, stream, args, delta);
  launch_kernel(f32::flash_f32_dkdv_kernel, "flash_f32_dkdv", k_tiles * args.batch * args.heads_kv, f32::kThreads,
                row_bytes * (args.dim + args.dim_v), stream, args, delta);
}

}  // namespace attest::cuda

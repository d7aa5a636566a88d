// SPDX-License-Identifier: Apache-2.0
// cuda-flash-f32, forward: the online softmax of FlashAttention in float32 on the ordinary units, every feature.
#include "cuda/flash_f32.cuh"
#include "cuda/flash_f32.h"
#include "cuda/launch.h"

namespace attest::cuda {
namespace f32 {
namespace {

/// Running maximum, sum and rescaling factor of the rows of a warp.
struct SoftmaxState {
  float max[kRowsPerWarp];    // [4]; natural domain
  float sum[kRowsPerWarp];    // [4]; this lane's part
  float alpha[kRowsPerWarp];  // [4]; what the last tile rescaled earlier sums by
};

struct TileWeights {
  float p[kRowsPerWarp];        // [4] of key `lane`, after dropout
  unsigned seen[kRowsPerWarp];  // [4] bit x: the row sees key x of the tile
};

__device__ TileWeights softmax_step(const Arguments& args, const Sequence& s, int h, int i0, int j0,
                                    const float (&dot)[kRowsPerWarp], SoftmaxState& state) {
  const int lane = threadIdx.x % 32;
  TileWeights weights;
#pragma unroll
  for (int r = 0; r < kRowsPerWarp; ++r) {
    const int i = i0 + (threadIdx.x / 32) * kRowsPerWarp + r;
    const int j = j0 + lane;
    float score = -INFINITY;
    if (visible(args, s, h, i, j)) score = score_of(args, s, h, i, j, dot[r]).value;
    weights.seen[r] = __ballot_sync(kWholeWarp, score != -INFINITY);

    const float max = fmaxf(state.max[r], warp_max(score));
    const float safe_max = max == -INFINITY ? 0.0f : max;
    float p = score == -INFINITY ? 0.0f : expf(score - safe_max);
    state.alpha[r] = state.max[r] == -INFINITY ? 0.0f : expf(state.max[r] - safe_max);
    state.sum[r] = state.sum[r] * state.alpha[r] + p;
    state.max[r] = max;
    if (args.has_dropout && p != 0 && !keeps(args, s.b, h, i, j)) p = 0;
    weights.p[r] = p;
  }
  return weights;
}

__global__ void __launch_bounds__(kThreads) flash_f32_forward_kernel(const Arguments args) {
  __shared__ Chunk q_chunk;          // [32 rows, 32]
  __shared__ Chunk k_chunk;          // [32 keys, 32], then of V
  extern __shared__ float o_tile[];  // [32 rows, Dv]

  const auto [s, h, i0] = place_tile(args, args.max_q, args.heads_q);
  if (i0 >= s.sq) return;
  const int warp_row = (threadIdx.x / 32) * kRowsPerWarp;
  const int lane = threadIdx.x % 32;

  for (int at = threadIdx.x; at < kTile * args.dim_v; at += kThreads) o_tile[at] = 0;
  SoftmaxState state;
  for (int r = 0; r < kRowsPerWarp; ++r) {
    state.max[r] = -INFINITY;
    state.sum[r] = 0;
  }

  const int last_row = min(i0 + kTile, s.sq) - 1;
  for (int j0 = s.first_key(i0) / kTile * kTile; j0 < s.last_key(last_row); j0 += kTile) {
    float dot[kRowsPerWarp] = {};
    for (int c = 0; c < args.dim; c += kTile) {
      __syncthreads();
      load_chunk(q_chunk, args.dtype, args.q, s, s.row_q, s.sq, h, i0, c, args.dim);
      load_key_chunk(k_chunk, args, args.k, s, h / args.group, j0, c, args.dim);
      __syncthreads();
      multiply_rows_by_lanes(dot, q_chunk, k_chunk);
    }
    const TileWeights weights = softmax_step(args, s, h, i0, j0, dot, state);
    for (int c = 0; c < args.dim_v; c += kTile) {
      __syncthreads();
      load_key_chunk(k_chunk, args, args.v, s, h / args.group, j0, c, args.dim_v);
      __syncthreads();
#pragma unroll
      for (int r = 0; r < kRowsPerWarp; ++r) {
        float* const o = o_tile + (warp_row + r) * args.dim_v + c + lane;
        const float before = c + lane < args.dim_v ? *o * state.alpha[r] : 0;
        const float after = add_seen_rows(before, weights.p[r], weights.seen[r], k_chunk);
        if (c + lane < args.dim_v) *o = after;
      }
    }
  }

  for (int r = 0; r < kRowsPerWarp; ++r) {
    const float sum = warp_sum(state.sum[r]);
    const int i = i0 + warp_row + r;
    if (i >= s.sq) continue;
    const float factor = sum == 0 ? 0.0f : args.keep_scale / sum;
    if (lane == 0) *lse_pointer(args.lse, s, h, i) = sum == 0 ? -INFINITY : state.max[r] + logf(sum);
    const std::int64_t at = element_offset(args.o, s.b, s.row_q + i, h);
    for (int c = lane; c < args.dim_v; c += 32) {
      store_element(args.out_dtype, args.o.data, at + c, o_tile[(warp_row + r) * args.dim_v + c] * factor);
    }
  }
}

}  // namespace
}  // namespace f32

void launch_flash_f32_forward(const Arguments& args, cudaStream_t stream) {
  const std::int64_t blocks =
      static_cast<std::int64_t>(args.batch) * args.heads_q * ((args.max_q + f32::kTile - 1) / f32::kTile);
  const int shared = f32::kTile * args.dim_v * static_cast<int>(sizeof(float));
  launch_kernel(f32::flash_f32_forward_kernel, "flash_f32_forward", blocks, f32::kThreads, shared, stream, args);
}

}  // namespace attest::cuda

// SPDX-License-Identifier: Apache-2.0
// cuda-flash, backward: FlashAttention-2 on mma.sync. A block owns a tile of keys of one key/value head and walks the
// queries that see them, over all heads of the group: S and dP are recomputed from LSE, dK and dV stay in registers,
// dQ is added to a float32 work array, whose tiles are kept in the order of the accumulators so that the additions
// coalesce. When the call must be deterministic, blocks add to a tile of dQ in the order of their keys.
#pragma once

#include "cuda/flash_backward_output.cuh"
#include "cuda/flash_backward_place.cuh"
#include "cuda/launch.h"
#include "cuda/scores.cuh"

namespace attest::cuda {

/// LSE and delta of the rows that a lane holds of S.
template <typename C>
struct RowStatistics {
  float lse[C::kScoreRows / 16][2];  // +inf where the row does not exist or sees nothing: P becomes 0
  float delta[C::kScoreRows / 16][2];
};

template <typename C>
__device__ RowStatistics<C> load_statistics(const Arguments& args, const FlashWorkspace& work, const Sequence& s, int h,
                                            int first_row) {
  RowStatistics<C> rows;
#pragma unroll
  for (int m = 0; m < C::kScoreRows / 16; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = first_row + 16 * m + lane_row(2 * half);
      rows.lse[m][half] = INFINITY;
      rows.delta[m][half] = 0;
      if (i >= s.sq) continue;
      const float lse = *lse_pointer(args.lse, s, h, i);
      rows.lse[m][half] = lse == -INFINITY ? INFINITY : lse;
      rows.delta[m][half] = work.delta[work_row(args, s, h, i)];
    }
  }
  return rows;
}

/// Scores become P, in the sign bit whether dropout drops it; with a softcap P carries the factor of its derivative
/// from here on. Returns through `p_tile` what multiplies dO: P after dropout, over 1 - p, rounded.
template <typename C>
__device__ void scores_to_p(ScoreBlock<C>& s_p, const Arguments& args, const KeyPlace& at, int h, int row, int key,
                            const RowStatistics<C>& rows, bool partly_hidden, unsigned p_tile, int tile_row,
                            int tile_key) {
  constexpr float kLog2E = 1.4426950408889634f;
  ScoreBlock<C> p;
#pragma unroll
  for (int m = 0; m < C::kScoreRows / 16; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = row + 16 * m + lane_row(2 * half);
      const int first = at.s.first_key(i);
      const int last = i < at.s.sq ? at.s.last_key(i) : 0;
#pragma unroll
      for (int n = 0; n < C::kScoreKeys / 8; ++n) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          float& value = s_p[m][n][e];
          const int j = key + 8 * n + lane_column(e);
          if constexpr (C::kRare) {
            float derivative = 0, weight = 0;
            if (j >= first && j < last && mask_shows(args, at.s.b, h, i, j)) {
              const Score score = score_of(args, at.s, h, i, j, value);
              derivative = score.derivative;
              weight = exp2_approx((score.value - rows.lse[m][half]) * kLog2E);
            }
            const bool dropped = args.has_dropout && weight != 0 && !keeps(args, at.s.b, h, i, j);
            p[m][n][e] = dropped ? 0 : weight * args.keep_scale;  // scaled before it is rounded: f16 has a floor
            value = dropped ? -weight * derivative : weight * derivative;
          } else {
            const float weight = exp2_approx((scaled(value, args.scale) - rows.lse[m][half]) * kLog2E);
            value = !partly_hidden || (j >= first && j < last) ? weight : 0.0f;
          }
        }
      }
    }
  }
  store_rounded<typename C::Element, typename C::ScoreLayout>(p_tile, tile_row, tile_key, C::kRare ? p : s_p);
}

/// dP becomes dS = P (dP - delta); exactly 0 where P is, though dP may be NaN there.
template <typename C>
__device__ void dp_to_ds(ScoreBlock<C>& dp, const ScoreBlock<C>& p, const Arguments& args, const RowStatistics<C>& rows,
                         bool partly_hidden) {
#pragma unroll
  for (int m = 0; m < C::kScoreRows / 16; ++m) {
#pragma unroll
    for (int n = 0; n < C::kScoreKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float delta = rows.delta[m][e / 2];
        const float weight = p[m][n][e];
        float ds;
        if constexpr (C::kRare) {
          ds = fabsf(weight) * ((signbit(weight) ? 0.0f : dp[m][n][e] * args.keep_scale) - delta);
        } else {
          ds = weight * (dp[m][n][e] - delta);
        }
        dp[m][n][e] = partly_hidden && weight == 0 ? 0.0f : ds;
      }
    }
  }
}

/// Adds a tile of dQ to the work array, in accumulator order.
template <typename C>
__device__ void add_dq(const DqBlock<C>& dq, float* tile) {
#pragma unroll
  for (int m = 0; m < C::kDqRows / 16; ++m)
#pragma unroll
    for (int n = 0; n < C::kDqColumns / 8; ++n)
      add_global_4(tile + ((m * (C::kDqColumns / 8) + n) * C::kThreads + threadIdx.x) * 4, dq[m][n]);
}

/// Waits until the blocks of earlier keys have added their part to this tile of dQ.
template <typename C>
__device__ void wait_for_turn(const int* turns, const KeyPlace& at, int tile) {
  const int first_tile = max(0, tile * C::kRows + at.s.first_shift) / C::kKeys;
  if (threadIdx.x == 0) {
    while (load_acquire(turns) != at.tile - first_tile) {
    }
  }
  __syncthreads();
}

__device__ inline void give_turn(int* turns) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) add_release(turns, 1);
}

/// Rows of Q or dO that see no key contribute nothing, even where they hold NaN.
template <typename C>
__device__ void clear_empty_rows(unsigned q_tile, unsigned d_o_tile, const Arguments& args, const Sequence& s, int h,
                                 int i0) {
  using Element = typename C::Element;
  for (int at = threadIdx.x; at < C::kRows * C::Tile::kChunks; at += C::kThreads) {
    const int row = at / C::Tile::kChunks;
    if (i0 + row >= s.sq || *lse_pointer(args.lse, s, h, i0 + row) != -INFINITY) continue;
    const unsigned offset = C::Tile::offset(row, at % C::Tile::kChunks);
    store_shared_128(q_tile + offset, make_uint4(0, 0, 0, 0));
    store_shared_128(d_o_tile + offset, make_uint4(0, 0, 0, 0));
  }
  __syncthreads();
}

template <typename C>
__global__ void __launch_bounds__(C::kThreads, 1)
    flash_backward_kernel(const Arguments args, const FlashWorkspace work) {
  using Element = typename C::Element;
  using Tile = typename C::Tile;
  using ScoreLayout = typename C::ScoreLayout;
  extern __shared__ __align__(128) std::byte shared[];
  const unsigned k_tile = shared_address(shared);                        // [kKeys, kWidth]
  const unsigned v_tile = k_tile + C::kKeyBytes;                         // [kKeys, kWidth]
  const unsigned q_tiles = v_tile + C::kKeyBytes;                        // [stages, kRows, kWidth]
  const unsigned d_o_tiles = q_tiles + C::kTiles.stages * C::kRowBytes;  // [stages, kRows, kWidth]
  const unsigned p_tile = d_o_tiles + C::kTiles.stages * C::kRowBytes;   // [kRows, kKeys]
  const unsigned ds_tile = p_tile + C::kScoreBytes;                      // [kRows, kKeys]

  int block = blockIdx.x;
  if (args.deterministic) block = take_ticket(work.ticket);
  const KeyPlace at = place_keys<C>(args, block);
  if (at.j0 >= at.s.sk) return;

  const int warp = threadIdx.x / 32;
  const int score_row = warp % C::kTiles.score_row_warps * C::kScoreRows;
  const int score_key = warp / C::kTiles.score_row_warps * C::kScoreKeys;
  const int gradient_key = warp % C::kTiles.key_warps * C::kGradientKeys;
  const int gradient_column = warp / C::kTiles.key_warps * C::kGradientColumns;
  const int dq_row = warp % C::kTiles.dq_row_warps * C::kDqRows;
  const int dq_column = warp / C::kTiles.dq_row_warps * C::kDqColumns;

  const int tiles = at.last_tile - at.first_tile;
  const int steps = tiles * args.group;
  const auto load_rows = [&](int step) {
    const int stage = C::kTiles.stages == 2 ? step % 2 : 0;
    const int h = at.kv_head * args.group + step / tiles;
    const int i0 = (at.first_tile + step % tiles) * C::kRows;
    load_tile<Element, C::kRows, C::kWidth, C::kThreads>(
        q_tiles + stage * C::kRowBytes,
        tile_source<Element>(args.q, at.s, at.s.row_q, h, i0, at.s.sq, args.dim, args.vectorised));
    load_tile<Element, C::kRows, C::kWidth, C::kThreads>(
        d_o_tiles + stage * C::kRowBytes,
        tile_source<Element>(args.d_o, at.s, at.s.row_q, h, i0, at.s.sq, args.dim_v, args.vectorised));
    commit_copies();
  };

  GradientBlock<C> dk, dv;
  set_zero(dk);
  set_zero(dv);
  if (steps > 0) {
    load_tile<Element, C::kKeys, C::kWidth, C::kThreads>(
        k_tile, tile_source<Element>(args.k, at.s, at.s.row_k, at.kv_head, at.j0, at.s.sk, args.dim, args.vectorised));
    load_tile<Element, C::kKeys, C::kWidth, C::kThreads>(
        v_tile,
        tile_source<Element>(args.v, at.s, at.s.row_k, at.kv_head, at.j0, at.s.sk, args.dim_v, args.vectorised));
    load_rows(0);
    wait_copies<0>();
    __syncthreads();
    // A NaN of a visible key is in its rows' LSE already; in K it would reach rows that do not see the key.
    remove_nonfinite<Element, C::kKeys, C::kWidth, C::kThreads>(k_tile);
  }

#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const int stage = C::kTiles.stages == 2 ? step % 2 : 0;
    const unsigned q_tile = q_tiles + stage * C::kRowBytes;
    const unsigned d_o_tile = d_o_tiles + stage * C::kRowBytes;
    const int h = at.kv_head * args.group + step / tiles;
    const int tile = at.first_tile + step % tiles;
    const int i0 = tile * C::kRows;
    const int last_row = min(i0 + C::kRows, at.s.sq) - 1;
    const bool partly_hidden = C::kRare || at.j0 < at.s.first_key(last_row) || at.j0 + C::kKeys > at.s.last_key(i0);

    const RowStatistics<C> rows = load_statistics<C>(args, work, at.s, h, i0 + score_row);
    wait_copies<0>();
    __syncthreads();  // Q and dO are there; everyone is done with the step before
    if (C::kTiles.stages == 2 && step + 1 < steps) load_rows(step + 1);
    if (partly_hidden) clear_empty_rows<C>(q_tile, d_o_tile, args, at.s, h, i0);

    ScoreBlock<C> p, ds;
    set_zero(p);
    multiply<Element, Tile, Stored::as_is, Tile, Stored::transposed, C::kWidth / 16>(
        p, lane_of_a<Tile, Stored::as_is>(q_tile, score_row, 0),
        lane_of_b<Tile, Stored::transposed>(k_tile, score_key, 0));
    scores_to_p<C>(p, args, at, h, i0 + score_row, at.j0 + score_key, rows, partly_hidden, p_tile, score_row,
                   score_key);
    set_zero(ds);
    multiply<Element, Tile, Stored::as_is, Tile, Stored::transposed, C::kWidth / 16>(
        ds, lane_of_a<Tile, Stored::as_is>(d_o_tile, score_row, 0),
        lane_of_b<Tile, Stored::transposed>(v_tile, score_key, 0));
    dp_to_ds<C>(ds, p, args, rows, partly_hidden);
    store_rounded<Element, ScoreLayout>(ds_tile, score_row, score_key, ds);
    __syncthreads();  // P and dS are there

    multiply<Element, ScoreLayout, Stored::transposed, Tile, Stored::as_is, C::kRows / 16>(
        dv, lane_of_a<ScoreLayout, Stored::transposed>(p_tile, 0, gradient_key),
        lane_of_b<Tile, Stored::as_is>(d_o_tile, 0, gradient_column));
    multiply<Element, ScoreLayout, Stored::transposed, Tile, Stored::as_is, C::kRows / 16>(
        dk, lane_of_a<ScoreLayout, Stored::transposed>(ds_tile, 0, gradient_key),
        lane_of_b<Tile, Stored::as_is>(q_tile, 0, gradient_column));
    DqBlock<C> dq;
    set_zero(dq);
    multiply<Element, ScoreLayout, Stored::as_is, Tile, Stored::as_is, C::kKeys / 16>(
        dq, lane_of_a<ScoreLayout, Stored::as_is>(ds_tile, dq_row, 0),
        lane_of_b<Tile, Stored::as_is>(k_tile, 0, dq_column));

    const std::int64_t query_tile = query_tile_index<C>(args, at.s, h, tile);
    if (args.deterministic) wait_for_turn<C>(work.turns + query_tile, at, tile);
    add_dq<C>(dq, work.dq + query_tile * C::kRows * C::kWidth);
    if (args.deterministic) give_turn(work.turns + query_tile);
    if (C::kTiles.stages == 1 && step + 1 < steps) {
      __syncthreads();
      load_rows(step + 1);
    }
  }
  __syncthreads();
  store_gradient<C>(dv, 1.0f, v_tile, gradient_key, gradient_column, args.dv, args.dim_v, args, at);
  store_gradient<C>(dk, args.scale, k_tile, gradient_key, gradient_column, args.dk, args.dim, args, at);
}

template <typename Element, int kWidth>
void launch_flash_backward(const Arguments& args, const FlashWorkspace& work, bool rare, cudaStream_t stream) {
  const auto launch = [&](auto config) {
    using C = decltype(config);
    const std::int64_t key_tiles = (args.max_k + C::kKeys - 1) / C::kKeys;
    const std::int64_t query_tiles = (args.max_q + C::kRows - 1) / C::kRows;
    launch_kernel(flash_backward_kernel<C>, "flash_backward", key_tiles * args.batch * args.heads_kv, C::kThreads,
                  C::kSharedBytes, stream, args, work);
    launch_kernel(flash_store_dq_kernel<C>, "flash_store_dq", query_tiles * args.batch * args.heads_q, C::kThreads, 0,
                  stream, args, work);
  };
  if (rare) {
    launch(BackwardConfig<Element, kWidth, true>{});
  } else {
    launch(BackwardConfig<Element, kWidth, false>{});
  }
}

}  // namespace attest::cuda

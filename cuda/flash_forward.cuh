// SPDX-License-Identifier: Apache-2.0
// cuda-flash, forward: FlashAttention-2 on mma.sync. A block owns a tile of queries of one head and walks the keys it
// sees; a warp owns 16 or 32 rows, whose scores and outputs stay in registers. The softmax is online, base 2.
//
// kRare adds explicit and block masks, bias, ALiBi, softcap, dropout and scales <= 0. Causal mask, window, lengths,
// layouts and grouped heads are in both variants.
#pragma once

#include "cuda/flash.h"
#include "cuda/flash_tiles.h"
#include "cuda/launch.h"
#include "cuda/matrix_product.cuh"
#include "cuda/scores.cuh"

namespace attest::cuda {

template <typename Element_, int kWidth_, bool kRare_>
struct ForwardConfig {
  using Element = Element_;
  static constexpr int kWidth = kWidth_;
  static constexpr bool kRare = kRare_;
  static constexpr bool kPaged = false;  // keys may come from pages: flash_split.cuh
  static constexpr ForwardTiles kTiles = forward_tiles(kWidth);
  static constexpr int kRows = kTiles.rows;
  static constexpr int kKeys = kTiles.keys;
  static constexpr int kWarps = kTiles.warps;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kWarpRows = kRows / kWarps;
  static constexpr int kRowTiles = kWarpRows / 16;  // 16-row tiles of a warp
  static constexpr int kKeyTiles = kKeys / 8;       // 8-key tiles of a step
  static constexpr int kColumnTiles = kWidth / 8;   // 8-column tiles of the output
  static constexpr int kQBytes = kRows * kWidth * 2;
  static constexpr int kKeyBytes = kKeys * kWidth * 2;
  static constexpr int kSharedBytes = kQBytes + 2 * kKeyBytes;
};

/// Accumulators in the layout of mma_16x8x16: rows g and g + 8 of each 16-row tile.
template <typename C>
using ScoreTile = float[C::kRowTiles][C::kKeyTiles][4];  // [kWarpRows, kKeys]
template <typename C>
using OutputTile = float[C::kRowTiles][C::kColumnTiles][4];  // [kWarpRows, kWidth]

/// Where a block is: its sequence, head and first query; which keys its rows see.
struct BlockPlace {
  Sequence s;
  int h;
  int i0;
  int first_key;  // of the union over the rows
  int last_key;
  int all_see_from;  // keys [all_see_from, all_see_to) are seen by every row
  int all_see_to;
};

template <typename C>
__device__ BlockPlace place_block(const Arguments& args, std::int64_t block) {
  BlockPlace at;
  const int tiles = (args.max_q + C::kRows - 1) / C::kRows;
  const int tile = tiles - 1 - static_cast<int>(block % tiles);  // under a causal mask the longest first
  at.h = static_cast<int>(block / tiles % args.heads_q);
  at.s = sequence_of(args, static_cast<int>(block / tiles / args.heads_q));
  at.i0 = tile * C::kRows;
  const int last_row = min(at.i0 + C::kRows, at.s.sq) - 1;
  at.first_key = at.s.first_key(at.i0);
  at.last_key = at.s.last_key(last_row);
  at.all_see_from = at.s.first_key(last_row);
  at.all_see_to = at.s.last_key(at.i0);
  return at;
}

/// O += P V, P rounded to the element type.
template <typename C>
__device__ void multiply_p_v(OutputTile<C>& output, const ScoreTile<C>& p, unsigned v_lane) {
  using Layout = TileLayout<C::kWidth>;
#pragma unroll
  for (int step = 0; step < C::kKeys / 16; ++step) {
    unsigned a[C::kRowTiles][4];
#pragma unroll
    for (int m = 0; m < C::kRowTiles; ++m) {
      const auto& low = p[m][2 * step];
      const auto& high = p[m][2 * step + 1];
      a[m][0] = pack<typename C::Element>(low[0], low[1]);
      a[m][1] = pack<typename C::Element>(low[2], low[3]);
      a[m][2] = pack<typename C::Element>(high[0], high[1]);
      a[m][3] = pack<typename C::Element>(high[2], high[3]);
    }
#pragma unroll
    for (int n = 0; n < C::kColumnTiles; n += 2) {
      unsigned v[4];
      load_matrices_transposed(v, Layout::moved(v_lane, 16 * step, n));
#pragma unroll
      for (int m = 0; m < C::kRowTiles; ++m) {
        mma_16x8x16<typename C::Element>(output[m][n], a[m], v[0], v[1]);
        mma_16x8x16<typename C::Element>(output[m][n + 1], a[m], v[2], v[3]);
      }
    }
  }
}

/// Scores of hidden keys become -inf; with kRare, scores become the contract's s_ij in the natural domain.
template <typename C>
__device__ void finish_scores(ScoreTile<C>& score, const Arguments& args, const BlockPlace& at, int warp_row, int j0) {
#pragma unroll
  for (int m = 0; m < C::kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = at.i0 + warp_row + 16 * m + lane_row(2 * half);
      const int first = at.s.first_key(i) - j0;
      const int last = (i < at.s.sq ? at.s.last_key(i) : 0) - j0;
#pragma unroll
      for (int n = 0; n < C::kKeyTiles; ++n) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          const int key = 8 * n + lane_column(e);
          bool shows = key >= first && key < last;
          if constexpr (C::kRare) {
            shows = shows && mask_shows(args, at.s.b, at.h, i, j0 + key);
            if (shows) score[m][n][e] = score_of(args, at.s, at.h, i, j0 + key, score[m][n][e]).value;
          }
          if (!shows) score[m][n][e] = -INFINITY;
        }
      }
    }
  }
}

template <typename C>
struct RowState {
  float max[C::kRowTiles][2];  // of the scores so far
  float sum[C::kRowTiles][2];  // this lane's part
};

__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/// Online softmax of one step: scores become P = 2^((s - max) * scale_log2), earlier sums and outputs are rescaled.
/// The maximum is subtracted before the multiplication: the largest P is exactly 1, however large the scores.
template <typename C>
__device__ void softmax_step(ScoreTile<C>& score, OutputTile<C>& output, RowState<C>& state, float scale_log2) {
#pragma unroll
  for (int m = 0; m < C::kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float max = state.max[m][half];
#pragma unroll
      for (int n = 0; n < C::kKeyTiles; ++n) max = fmaxf(max, fmaxf(score[m][n][2 * half], score[m][n][2 * half + 1]));
      max = quad_max(max);
      const float safe_max = max == -INFINITY ? 0.0f : max;
      const float alpha = exp2_approx((state.max[m][half] - safe_max) * scale_log2);
      state.max[m][half] = max;
      float sum = state.sum[m][half] * alpha;
#pragma unroll
      for (int n = 0; n < C::kKeyTiles; ++n) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          score[m][n][e] = exp2_approx((score[m][n][e] - safe_max) * scale_log2);
          sum += score[m][n][e];
        }
      }
      state.sum[m][half] = sum;
#pragma unroll
      for (int n = 0; n < C::kColumnTiles; ++n) {
        output[m][n][2 * half] *= alpha;
        output[m][n][2 * half + 1] *= alpha;
      }
    }
  }
}

template <typename C>
__device__ void apply_dropout(ScoreTile<C>& p, const Arguments& args, const BlockPlace& at, int warp_row, int j0) {
#pragma unroll
  for (int m = 0; m < C::kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = at.i0 + warp_row + 16 * m + lane_row(2 * half);
#pragma unroll
      for (int n = 0; n < C::kKeyTiles; ++n) {
        const uint4 words = dropout_words(args, at.s.b, at.h, i, (j0 + 8 * n + lane_column(0)) / 4);
        const bool upper = threadIdx.x % 2 != 0;
        if ((upper ? words.z : words.x) >= args.keep_below) p[m][n][2 * half] = 0;
        if ((upper ? words.w : words.y) >= args.keep_below) p[m][n][2 * half + 1] = 0;
      }
    }
  }
}

/// Adds the NaN and infinities of V that remove_nonfinite() took out of tiles to the rows that see them.
template <typename C>
__device__ void add_nonfinite_values(OutputTile<C>& output, const Arguments& args, const BlockPlace& at, int warp_row) {
#pragma unroll 1
  for (int j = at.first_key; j < at.last_key; ++j) {
    const auto* v = row_pointer<const typename C::Element>(args.v, at.s, at.s.row_k, j, at.h / args.group);
    if constexpr (C::kPaged) {
      v = static_cast<const typename C::Element*>(args.v.data) + key_offset(args, args.v, at.s, j, at.h / args.group);
    }
#pragma unroll
    for (int m = 0; m < C::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = at.i0 + warp_row + 16 * m + lane_row(2 * half);
        if (!visible(args, at.s, at.h, i, j) || hidden_by_bias(args, at.s, at.h, i, j)) continue;
#pragma unroll
        for (int n = 0; n < C::kColumnTiles; ++n) {
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            const int column = 8 * n + lane_column(e);
            const float value = column < args.dim_v ? static_cast<float>(v[column]) : 0.0f;
            if (!isfinite(value)) output[m][n][e] += value;
          }
        }
      }
    }
  }
}

/// O and LSE of a block to their tensors.
template <typename C>
__device__ void store_output(OutputTile<C>& output, const RowState<C>& state, const Arguments& args,
                             const BlockPlace& at, int warp_row, float max_to_natural, unsigned q_shared) {
  using Layout = TileLayout<C::kWidth>;
  using Element = typename C::Element;
  constexpr int kElementType = std::is_same_v<Element, __half> ? ATTEST_F16 : ATTEST_BF16;
  const bool staged = args.vectorised_out && args.out_dtype == kElementType;
  const unsigned lane_base = q_shared + Layout::offset(warp_row + threadIdx.x % 32 / 4, 0) + threadIdx.x % 4 * 4;
#pragma unroll
  for (int m = 0; m < C::kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = at.i0 + warp_row + 16 * m + lane_row(2 * half);
      const float sum = quad_sum(state.sum[m][half]);
      const float factor = sum == 0 ? 0.0f : args.keep_scale / sum;
      const float max = state.max[m][half];
      if (i < at.s.sq && threadIdx.x % 4 == 0) {
        *lse_pointer(args.lse, at.s, at.h, i) = sum == 0 ? -INFINITY : scaled(max, max_to_natural) + logf(sum);
      }
      const std::int64_t row = element_offset(args.o, at.s.b, at.s.row_q + i, at.h);
#pragma unroll
      for (int n = 0; n < C::kColumnTiles; ++n) {
        const float low = output[m][n][2 * half] * factor;
        const float high = output[m][n][2 * half + 1] * factor;
        if (staged) {
          store_shared_32(Layout::moved(lane_base, 16 * m + 8 * half, n), pack<Element>(low, high));
        } else if (i < at.s.sq) {
          const int column = 8 * n + lane_column(0);
          if (column < args.dim_v) store_element(args.out_dtype, args.o.data, row + column, low);
          if (column + 1 < args.dim_v) store_element(args.out_dtype, args.o.data, row + column + 1, high);
        }
      }
    }
  }
  if (!staged) return;
  __syncwarp();
  for (int chunk_at = threadIdx.x % 32; chunk_at < C::kWarpRows * Layout::kChunks; chunk_at += 32) {
    const int row = warp_row + chunk_at / Layout::kChunks;
    const int chunk = chunk_at % Layout::kChunks;
    if (at.i0 + row >= at.s.sq || chunk * 8 >= args.dim_v) continue;
    auto* const to = row_pointer<Element>(args.o, at.s, at.s.row_q, at.i0 + row, at.h) + chunk * 8;
    *reinterpret_cast<uint4*>(to) = load_shared_128(q_shared + Layout::offset(row, chunk));
  }
}

template <typename C>
__global__ void __launch_bounds__(C::kThreads, C::kTiles.blocks) flash_forward_kernel(const Arguments args) {
  using Element = typename C::Element;
  using Layout = TileLayout<C::kWidth>;
  extern __shared__ __align__(128) std::byte shared[];
  const unsigned q_shared = shared_address(shared);   // [kRows, kWidth]
  const unsigned k_shared = q_shared + C::kQBytes;    // [kKeys, kWidth]
  const unsigned v_shared = k_shared + C::kKeyBytes;  // [kKeys, kWidth]

  const BlockPlace at = place_block<C>(args, blockIdx.x);
  if (at.i0 >= at.s.sq) return;
  const int warp_row = threadIdx.x / 32 * C::kWarpRows;
  const int kv_head = at.h / args.group;

  const unsigned q_lane = lane_of_a<Layout, Stored::as_is>(q_shared, warp_row, 0);
  const unsigned k_lane = lane_of_b<Layout, Stored::transposed>(k_shared, 0, 0);
  const unsigned v_lane = lane_of_b<Layout, Stored::as_is>(v_shared, 0, 0);

  int j0 = at.first_key / C::kKeys * C::kKeys;
  const auto* const k = row_pointer<const Element>(args.k, at.s, at.s.row_k, 0, kv_head);
  const auto* const v = row_pointer<const Element>(args.v, at.s, at.s.row_k, 0, kv_head);
  const auto load_keys = [&](unsigned to, const Element* rows, std::int64_t stride, int first, int width) {
    load_tile<Element, C::kKeys, C::kWidth, C::kThreads>(
        to, TileSource{rows + first * stride, stride, at.s.sk - first, width, args.vectorised});
    commit_copies();
  };

  const float scale_log2 = C::kRare ? 1.4426950408889634f : args.scale * 1.4426950408889634f;
  OutputTile<C> output = {};
  RowState<C> state;
#pragma unroll
  for (int m = 0; m < C::kRowTiles; ++m) {
    state.max[m][0] = state.max[m][1] = -INFINITY;
    state.sum[m][0] = state.sum[m][1] = 0;
  }

  if (j0 < at.last_key) {
    load_tile<Element, C::kRows, C::kWidth, C::kThreads>(
        q_shared, tile_source<Element>(args.q, at.s, at.s.row_q, at.h, at.i0, at.s.sq, args.dim, args.vectorised));
    load_keys(k_shared, k, args.k.seq, j0, args.dim);
  }
  bool nonfinite = false;
#pragma unroll 1
  for (; j0 < at.last_key; j0 += C::kKeys) {
    const bool partly_hidden = C::kRare || j0 < at.all_see_from || j0 + C::kKeys > at.all_see_to;
    wait_copies<0>();
    __syncthreads();  // K is there; V's buffer is free
    load_keys(v_shared, v, args.v.seq, j0, args.dim_v);

    ScoreTile<C> score;
    set_zero(score);
    multiply<Element, Layout, Stored::as_is, Layout, Stored::transposed, C::kWidth / 16>(score, q_lane, k_lane);

    wait_copies<0>();
    __syncthreads();  // V is there; K's buffer is free
    if (partly_hidden) {
      nonfinite |= __syncthreads_or(remove_nonfinite<Element, C::kKeys, C::kWidth, C::kThreads>(v_shared));
    }
    if (j0 + C::kKeys < at.last_key) load_keys(k_shared, k, args.k.seq, j0 + C::kKeys, args.dim);
    if (partly_hidden) finish_scores<C>(score, args, at, warp_row, j0);
    softmax_step<C>(score, output, state, scale_log2);
    if constexpr (C::kRare) {
      if (args.has_dropout) apply_dropout<C>(score, args, at, warp_row, j0);
    }
    multiply_p_v<C>(output, score, v_lane);
  }
  if (nonfinite) add_nonfinite_values<C>(output, args, at, warp_row);
  store_output<C>(output, state, args, at, warp_row, C::kRare ? 1.0f : args.scale, q_shared);
}

template <typename Element, int kWidth>
void launch_flash_forward(const Arguments& args, bool rare, cudaStream_t stream) {
  const auto launch = [&](auto config) {
    using C = decltype(config);
    const std::int64_t blocks =
        static_cast<std::int64_t>(args.batch) * args.heads_q * ((args.max_q + C::kRows - 1) / C::kRows);
    launch_kernel(flash_forward_kernel<C>, "flash_forward", blocks, C::kThreads, C::kSharedBytes, stream, args);
  };
  if (rare) {
    launch(ForwardConfig<Element, kWidth, true>{});
  } else {
    launch(ForwardConfig<Element, kWidth, false>{});
  }
}

}  // namespace attest::cuda

// SPDX-License-Identifier: Apache-2.0
// Split keys (Flash-Decoding; "Split-KV" in FlashAttention-2's release): where there are few queries, several blocks
// share the keys of a row. Each block attends to its own run of keys as in flash_forward.cuh and leaves its own O and
// LSE; flash_merge.cu joins them. Keys may come from pages. One instance serves plain and rare features: reading K and
// V, not arithmetic, bounds it.
#pragma once

#include "cuda/flash_forward.cuh"

namespace attest::cuda {

template <typename Element_, int kWidth_, bool kRare_>
struct SplitConfig {
  using Element = Element_;
  static constexpr int kWidth = kWidth_;
  static constexpr bool kRare = kRare_;
  static constexpr bool kPaged = true;
  static constexpr int kRows = kSplitRows;
  static constexpr int kKeys = kSplitKeys;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kWarpRows = kRows / kWarps;
  static constexpr int kRowTiles = kWarpRows / 16;
  static constexpr int kKeyTiles = kKeys / 8;
  static constexpr int kColumnTiles = kWidth / 8;
  static constexpr int kQBytes = kRows * kWidth * 2;
  static constexpr int kKeyBytes = kKeys * kWidth * 2;
  static constexpr int kSharedBytes = kQBytes + 2 * kKeyBytes;
};

/// Starts the copies of a tile of paged keys; the caller commits them.
template <typename C>
__device__ void load_paged_tile(unsigned shared, const Arguments& args, const TensorView& tensor, const Sequence& s,
                                int head, int j0, int width) {
  using Layout = TileLayout<C::kWidth>;
  const auto* const data = static_cast<const typename C::Element*>(tensor.data);
#pragma unroll 1
  for (int at = threadIdx.x; at < C::kKeys * Layout::kChunks; at += C::kThreads) {
    const int row = at / Layout::kChunks;
    const int chunk = at % Layout::kChunks;
    const unsigned to = shared + Layout::offset(row, chunk);
    const bool valid = j0 + row < s.sk && chunk * 8 < width;
    const auto* const from = valid ? data + key_offset(args, tensor, s, j0 + row, head) : data;
    if (args.vectorised) {
      copy_async_16(to, valid ? from + chunk * 8 : data, valid);
    } else {
      store_shared_128(to, valid ? gather_chunk(from, chunk * 8, width) : make_uint4(0, 0, 0, 0));
    }
  }
}

/// O and LSE of this split's keys alone, to the work arrays.
template <typename C>
__device__ void store_partial(const OutputTile<C>& output, const RowState<C>& state, const Arguments& args,
                              const SplitWorkspace& work, const BlockPlace& at, int split, int warp_row,
                              float max_to_natural) {
#pragma unroll
  for (int m = 0; m < C::kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = at.i0 + warp_row + 16 * m + lane_row(2 * half);
      const float sum = quad_sum(state.sum[m][half]);
      if (i >= at.s.sq) continue;
      const std::int64_t row = split * work.rows + work_row(args, at.s, at.h, i);
      const float factor = sum == 0 ? 0.0f : args.keep_scale / sum;
      if (threadIdx.x % 4 == 0) {
        work.lse[row] = sum == 0 ? -INFINITY : scaled(state.max[m][half], max_to_natural) + logf(sum);
      }
      float* const o = work.o + row * args.dim_v;
#pragma unroll
      for (int n = 0; n < C::kColumnTiles; ++n) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          const int column = 8 * n + lane_column(e);
          if (column < args.dim_v) o[column] = output[m][n][e] * factor;
        }
      }
    }
  }
}

template <typename Element, int kWidth>
__global__ void __launch_bounds__(SplitConfig<Element, kWidth, false>::kThreads, kWidth <= 128 ? 2 : 1)
    flash_split_kernel(const Arguments args, const SplitWorkspace work) {
  using C = SplitConfig<Element, kWidth, false>;
  using RareC = SplitConfig<Element, kWidth, true>;
  using Layout = TileLayout<kWidth>;
  extern __shared__ __align__(128) std::byte shared[];
  const unsigned q_shared = shared_address(shared);   // [kRows, kWidth]
  const unsigned k_shared = q_shared + C::kQBytes;    // [kKeys, kWidth]
  const unsigned v_shared = k_shared + C::kKeyBytes;  // [kKeys, kWidth]

  const int split = static_cast<int>(blockIdx.x % work.splits);
  BlockPlace at = place_block<C>(args, blockIdx.x / work.splits);
  if (at.i0 >= at.s.sq) return;
  const int warp_row = threadIdx.x / 32 * C::kWarpRows;
  const int kv_head = at.h / args.group;

  // This split's share of the steps; none, where there are more splits than steps.
  const int first_step = at.first_key / C::kKeys;
  const int steps = max(0, (at.last_key + C::kKeys - 1) / C::kKeys - first_step);
  const int share = (steps + work.splits - 1) / work.splits;
  at.first_key = max(at.first_key, (first_step + split * share) * C::kKeys);
  at.last_key = min(at.last_key, (first_step + (split + 1) * share) * C::kKeys);
  int j0 = at.first_key / C::kKeys * C::kKeys;

  const unsigned q_lane = lane_of_a<Layout, Stored::as_is>(q_shared, warp_row, 0);
  const unsigned k_lane = lane_of_b<Layout, Stored::transposed>(k_shared, 0, 0);
  const unsigned v_lane = lane_of_b<Layout, Stored::as_is>(v_shared, 0, 0);
  const auto load_keys = [&](unsigned to, const TensorView& tensor, int first, int width) {
    if (args.page_table != nullptr) {
      load_paged_tile<C>(to, args, tensor, at.s, kv_head, first, width);
    } else {
      load_tile<Element, C::kKeys, kWidth, C::kThreads>(
          to, tile_source<Element>(tensor, at.s, at.s.row_k, kv_head, first, at.s.sk, width, args.vectorised));
    }
    commit_copies();
  };

  constexpr float kLog2E = 1.4426950408889634f;
  const float scale_log2 = args.rare ? kLog2E : args.scale * kLog2E;
  OutputTile<C> output = {};
  RowState<C> state;
#pragma unroll
  for (int m = 0; m < C::kRowTiles; ++m) {
    state.max[m][0] = state.max[m][1] = -INFINITY;
    state.sum[m][0] = state.sum[m][1] = 0;
  }

  if (j0 < at.last_key) {
    load_tile<Element, C::kRows, kWidth, C::kThreads>(
        q_shared, tile_source<Element>(args.q, at.s, at.s.row_q, at.h, at.i0, at.s.sq, args.dim, args.vectorised));
    load_keys(k_shared, args.k, j0, args.dim);
  }
  bool nonfinite = false;
#pragma unroll 1
  for (; j0 < at.last_key; j0 += C::kKeys) {
    const bool partly_hidden = args.rare || j0 < at.all_see_from || j0 + C::kKeys > at.all_see_to;
    wait_copies<0>();
    __syncthreads();  // K is there; V's buffer is free
    load_keys(v_shared, args.v, j0, args.dim_v);

    ScoreTile<C> score;
    set_zero(score);
    multiply<Element, Layout, Stored::as_is, Layout, Stored::transposed, kWidth / 16>(score, q_lane, k_lane);

    wait_copies<0>();
    __syncthreads();  // V is there; K's buffer is free
    if (partly_hidden) {
      nonfinite |= __syncthreads_or(remove_nonfinite<Element, C::kKeys, kWidth, C::kThreads>(v_shared));
    }
    if (j0 + C::kKeys < at.last_key) load_keys(k_shared, args.k, j0 + C::kKeys, args.dim);
    if (args.rare) {
      finish_scores<RareC>(score, args, at, warp_row, j0);
    } else if (partly_hidden) {
      finish_scores<C>(score, args, at, warp_row, j0);
    }
    softmax_step<C>(score, output, state, scale_log2);
    if (args.has_dropout) apply_dropout<C>(score, args, at, warp_row, j0);
    multiply_p_v<C>(output, score, v_lane);
  }
  if (nonfinite) add_nonfinite_values<C>(output, args, at, warp_row);
  const float max_to_natural = args.rare ? 1.0f : args.scale;
  if (work.splits > 1) {
    store_partial<C>(output, state, args, work, at, split, warp_row, max_to_natural);
  } else {
    store_output<C>(output, state, args, at, warp_row, max_to_natural, q_shared);
  }
}

template <typename Element, int kWidth>
void launch_flash_split(const Arguments& args, const SplitWorkspace& work, cudaStream_t stream) {
  using C = SplitConfig<Element, kWidth, false>;
  const std::int64_t tiles = (args.max_q + C::kRows - 1) / C::kRows;
  launch_kernel(flash_split_kernel<Element, kWidth>, "flash_split",
                static_cast<std::int64_t>(args.batch) * args.heads_q * tiles * work.splits, C::kThreads,
                C::kSharedBytes, stream, args, work);
}

}  // namespace attest::cuda

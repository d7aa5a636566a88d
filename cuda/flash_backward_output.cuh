// SPDX-License-Identifier: Apache-2.0
// cuda-flash, backward: gradients to their tensors, rounded once.
#pragma once

#include "cuda/flash_backward_place.cuh"

namespace attest::cuda {

/// Writes a [kKeys, kWidth] gradient from shared memory.
template <typename C>
__device__ void store_gradient(GradientBlock<C>& gradient, float factor, unsigned tile, int tile_key, int tile_column,
                               const TensorView& tensor, int width, const Arguments& args, const KeyPlace& at) {
  using Element = typename C::Element;
  constexpr int kElementType = std::is_same_v<Element, __half> ? ATTEST_F16 : ATTEST_BF16;
  if (args.vectorised_out && args.out_dtype == kElementType) {
    store_rounded<Element, typename C::Tile>(tile, tile_key, tile_column, gradient, factor);
    __syncthreads();
    for (int index = threadIdx.x; index < C::kKeys * C::Tile::kChunks; index += C::kThreads) {
      const int key = index / C::Tile::kChunks;
      const int chunk = index % C::Tile::kChunks;
      if (at.j0 + key >= at.s.sk || chunk * 8 >= width) continue;
      auto* const to = row_pointer<Element>(tensor, at.s, at.s.row_k, at.j0 + key, at.kv_head) + chunk * 8;
      *reinterpret_cast<uint4*>(to) = load_shared_128(tile + C::Tile::offset(key, chunk));
    }
    return;
  }
#pragma unroll
  for (int m = 0; m < C::kGradientKeys / 16; ++m) {
#pragma unroll
    for (int n = 0; n < C::kGradientColumns / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int j = at.j0 + tile_key + 16 * m + lane_row(e);
        const int column = tile_column + 8 * n + lane_column(e);
        if (j < at.s.sk && column < width) {
          store_element(args.out_dtype, tensor.data,
                        element_offset(tensor, at.s.b, at.s.row_k + j, at.kv_head) + column,
                        gradient[m][n][e] * factor);
        }
      }
    }
  }
}

/// dQ = scale times the work array, rounded; one block a tile of queries and head.
template <typename C>
__global__ void __launch_bounds__(C::kThreads) flash_store_dq_kernel(const Arguments args, const FlashWorkspace work) {
  constexpr int kElementType = std::is_same_v<typename C::Element, __half> ? ATTEST_F16 : ATTEST_BF16;
  const int tiles = (args.max_q + C::kRows - 1) / C::kRows;
  const int tile = blockIdx.x % tiles;
  const int h = blockIdx.x / tiles % args.heads_q;
  const Sequence s = sequence_of(args, blockIdx.x / tiles / args.heads_q);
  if (tile * C::kRows >= s.sq) return;
  const float* const from = work.dq + query_tile_index<C>(args, s, h, tile) * C::kRows * C::kWidth;
  const bool paired = args.vectorised_out && args.out_dtype == kElementType;
  const int warp = threadIdx.x / 32;
  const int row = tile * C::kRows + warp % C::kTiles.dq_row_warps * C::kDqRows;
  const int first_column = warp / C::kTiles.dq_row_warps * C::kDqColumns;
#pragma unroll
  for (int m = 0; m < C::kDqRows / 16; ++m) {
#pragma unroll
    for (int n = 0; n < C::kDqColumns / 8; ++n) {
      const float4 four =
          *reinterpret_cast<const float4*>(from + ((m * (C::kDqColumns / 8) + n) * C::kThreads + threadIdx.x) * 4);
      const float dq[4] = {four.x * args.scale, four.y * args.scale, four.z * args.scale, four.w * args.scale};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = row + 16 * m + lane_row(2 * half);
        const int column = first_column + 8 * n + lane_column(0);
        if (i >= s.sq || column >= args.dim) continue;
        const std::int64_t to = element_offset(args.dq, s.b, s.row_q + i, h) + column;
        if (paired) {
          *reinterpret_cast<unsigned*>(static_cast<typename C::Element*>(args.dq.data) + to) =
              pack<typename C::Element>(dq[2 * half], dq[2 * half + 1]);
        } else {
          store_element(args.out_dtype, args.dq.data, to, dq[2 * half]);
          if (column + 1 < args.dim) store_element(args.out_dtype, args.dq.data, to + 1, dq[2 * half + 1]);
        }
      }
    }
  }
}

}  // namespace attest::cuda

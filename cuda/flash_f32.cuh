// SPDX-License-Identifier: Apache-2.0
// Shared memory tiles of the float32 kernels (flash_f32_*.cu): a block is 8 warps, a warp owns 4 rows of the tile's
// first side and its 32 lanes stand for the 32 rows of the second, or for 32 columns while it multiplies by a value
// tile. Widths are walked in chunks of 32 columns, so that any width fits.
#pragma once

#include "cuda/scores.cuh"

namespace attest::cuda::f32 {

constexpr int kTile = 32;  // rows, keys and columns of every tile
constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kRowsPerWarp = kTile / kWarps;
constexpr unsigned kWholeWarp = 0xffffffffu;

using Chunk = float[kTile][kTile + 1];  // [32 rows, 32 columns], padded against bank conflicts

/// Rows row0 ... row0 + 31 and columns column0 ... column0 + 31 as f32, zero outside `rows` and `width`.
__device__ inline void load_chunk(Chunk& chunk, int dtype, const TensorView& tensor, const Sequence& s,
                                  std::int64_t first_row, int rows, int head, int row0, int column0, int width) {
  for (int at = threadIdx.x; at < kTile * kTile; at += kThreads) {
    const int row = at / kTile;
    const int column = at % kTile;
    float value = 0;
    if (row0 + row < rows && column0 + column < width) {
      value = load_element(dtype, tensor.data,
                           element_offset(tensor, s.b, first_row + row0 + row, head) + column0 + column);
    }
    chunk[row][column] = value;
  }
}

/// The same of k or v, paged or not.
__device__ inline void load_key_chunk(Chunk& chunk, const Arguments& args, const TensorView& tensor, const Sequence& s,
                                      int head, int j0, int column0, int width) {
  for (int at = threadIdx.x; at < kTile * kTile; at += kThreads) {
    const int j = j0 + at / kTile;
    const int column = column0 + at % kTile;
    float value = 0;
    if (j < s.sk && column < width) {
      value = load_element(args.dtype, tensor.data, key_offset(args, tensor, s, j, head) + column);
    }
    chunk[at / kTile][at % kTile] = value;
  }
}

/// The 32 rows of one head that a block owns.
struct TilePlace {
  Sequence s;
  int head;
  int first;  // row
};

__device__ inline TilePlace place_tile(const Arguments& args, int longest, int heads) {
  const int tiles = (longest + kTile - 1) / kTile;
  const int block = static_cast<int>(blockIdx.x);
  return {sequence_of(args, block / tiles / heads), block / tiles % heads, block % tiles * kTile};
}

/// Rows row0 ... of an accumulator tile times `factor`, to the tensor.
__device__ inline void store_rows(const float* tile, int width, int dtype, const TensorView& tensor, const Sequence& s,
                                  std::int64_t first_row, int rows, int head, int row0, float factor) {
  for (int at = threadIdx.x; at < kTile * width; at += kThreads) {
    const int row = at / width;
    if (row0 + row >= rows) break;
    store_element(dtype, tensor.data, element_offset(tensor, s.b, first_row + row0 + row, head) + at % width,
                  tile[at] * factor);
  }
}

/// dot[r] += <row (4 * warp + r) of `rows`, row `lane` of `lanes`> over one chunk of columns.
__device__ inline void multiply_rows_by_lanes(float (&dot)[kRowsPerWarp], const Chunk& rows, const Chunk& lanes) {
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int column = 0; column < kTile; ++column) {
    const float other = lanes[lane][column];
#pragma unroll
    for (int r = 0; r < kRowsPerWarp; ++r) dot[r] = fmaf(rows[warp * kRowsPerWarp + r][column], other, dot[r]);
  }
}

/// sum += over the 32 rows x of `values` that `seen` shows: weight of lane x times values[x][lane]. Rows that are
/// not seen are skipped, not multiplied by zero: they may hold NaN.
__device__ inline float add_seen_rows(float sum, float weight, unsigned seen, const Chunk& values) {
  const int lane = threadIdx.x % 32;
  for (unsigned left = seen; left != 0; left &= left - 1) {
    const int x = __ffs(left) - 1;
    sum = fmaf(__shfl_sync(kWholeWarp, weight, x), values[x][lane], sum);
  }
  return sum;
}

__device__ inline float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(kWholeWarp, value, offset);
  return value;
}

__device__ inline float warp_max(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(kWholeWarp, value, offset));
  return value;
}

}  // namespace attest::cuda::f32

// SPDX-License-Identifier: Apache-2.0
// A warp's product of two tiles in shared memory, accumulated in registers: C[16 kM, 8 kN] += A[16 kM, 16 kSteps]
// B[16 kSteps, 8 kN]. Where a tile stores its operand the other way round, it is transposed on the way.
#pragma once

#include "cuda/shared_tile.cuh"

namespace attest::cuda {

/// How the rows of a tile in shared memory are used by a product.
enum class Stored { as_is, transposed };

/// Lane address for operand A whose first row and 16 columns begin at (row, column) of the tile, or, transposed, whose
/// first column and row do.
template <typename Layout, Stored kStored>
__device__ unsigned lane_of_a(unsigned tile, int row, int column) {
  const LanePlace place = kStored == Stored::as_is ? rows_first() : columns_first();
  return tile + Layout::offset(row + place.row, column / 8 + place.chunk);
}

/// Lane address for operand B. A tile that holds B as it is ([k, n]) needs transposing loads: mma wants columns.
template <typename Layout, Stored kStored>
__device__ unsigned lane_of_b(unsigned tile, int row, int column) {
  const LanePlace place = kStored == Stored::as_is ? rows_first() : columns_first();
  return tile + Layout::offset(row + place.row, column / 8 + place.chunk);
}

template <typename Element, typename ALayout, Stored kA, typename BLayout, Stored kB, int kSteps, int kM, int kN>
__device__ void multiply(float (&c)[kM][kN][4], unsigned a_lane, unsigned b_lane) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    unsigned a[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      if constexpr (kA == Stored::as_is) {
        load_matrices(a[m], ALayout::moved(a_lane, 16 * m, 2 * step));
      } else {
        load_matrices_transposed(a[m], ALayout::moved(a_lane, 16 * step, 2 * m));
      }
    }
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      unsigned b[4];
      if constexpr (kB == Stored::as_is) {
        load_matrices_transposed(b, BLayout::moved(b_lane, 16 * step, n));
      } else {
        load_matrices(b, BLayout::moved(b_lane, 8 * n, 2 * step));
      }
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        mma_16x8x16<Element>(c[m][n], a[m], b[0], b[1]);
        mma_16x8x16<Element>(c[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

template <int kM, int kN>
__device__ void set_zero(float (&c)[kM][kN][4]) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) c[m][n][e] = 0;
}

/// Row (0 for g, 1 for g + 8) of element e of an accumulator, and its column within the 8-column tile.
__device__ inline int lane_row(int e) { return threadIdx.x % 32 / 4 + e / 2 * 8; }
__device__ inline int lane_column(int e) { return threadIdx.x % 4 * 2 + e % 2; }

/// Rounds an accumulator tile into shared memory at (row, column), `factor` times.
template <typename Element, typename Layout, int kM, int kN>
__device__ void store_rounded(unsigned tile, int row, int column, const float (&c)[kM][kN][4], float factor = 1) {
  const unsigned lane = tile + Layout::offset(row + lane_row(0), column / 8) + threadIdx.x % 4 * 4;
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        store_shared_32(Layout::moved(lane, 16 * m + 8 * half, n),
                        pack<Element>(c[m][n][2 * half] * factor, c[m][n][2 * half + 1] * factor));
}

}  // namespace attest::cuda

// SPDX-License-Identifier: Apache-2.0
// A plain tiled matrix product in float32: C[m, n] = sum_k A(m, k) B(n, k), a block a tile of 64 x 64, a thread 4 x 4.
// A and B are given as functions of their indices, C as a function that takes each element.
#pragma once

#include "cuda/elements.cuh"

namespace attest::cuda {

constexpr int kProductTile = 64;
constexpr int kProductDepth = 16;
constexpr int kProductThreads = 256;

/// Which index of an operand runs along memory: neighbouring threads read neighbours along it.
enum class Along { k, rows };

/// An A of -0 stands for "hidden": its product with B is left out, not added, for B may be NaN there.
constexpr float kHidden = -0.0f;
__device__ inline bool is_hidden(float x) { return x == 0 && signbit(x); }

struct ProductSize {
  int m;
  int n;
  std::int64_t k;
};

/// tile[k][row] = x(row0 + row, k0 + k), zero outside; returns whether this thread saw NaN or infinity.
template <Along kAlong, typename Operand>
__device__ bool load_operand(float (&tile)[kProductDepth][kProductTile + 4], const Operand& x, int row0, int rows,
                             std::int64_t k0, std::int64_t depth) {
  bool nonfinite = false;
#pragma unroll
  for (int pass = 0; pass < kProductTile * kProductDepth / kProductThreads; ++pass) {
    const int at = threadIdx.x + pass * kProductThreads;
    const int k = kAlong == Along::k ? at % kProductDepth : at / kProductTile;
    const int row = kAlong == Along::k ? at / kProductDepth : at % kProductTile;
    const float value = row0 + row < rows && k0 + k < depth ? x(row0 + row, k0 + k) : 0.0f;
    nonfinite |= !isfinite(value);
    tile[k][row] = value;
  }
  return nonfinite;
}

template <bool kSkipHidden>
__device__ void multiply_tiles(float (&sum)[4][4], const float (&a)[kProductDepth][kProductTile + 4],
                               const float (&b)[kProductDepth][kProductTile + 4]) {
  const int row = threadIdx.x / 16 * 4;
  const int column = threadIdx.x % 16 * 4;
#pragma unroll
  for (int k = 0; k < kProductDepth; ++k) {
    const float4 x4 = *reinterpret_cast<const float4*>(&a[k][row]);
    const float4 y4 = *reinterpret_cast<const float4*>(&b[k][column]);
    const float x[4] = {x4.x, x4.y, x4.z, x4.w};
    const float y[4] = {y4.x, y4.y, y4.z, y4.w};
#pragma unroll
    for (int m = 0; m < 4; ++m)
#pragma unroll
      for (int n = 0; n < 4; ++n)
        if (!kSkipHidden || !is_hidden(x[m])) sum[m][n] = fmaf(x[m], y[n], sum[m][n]);
  }
}

/// `c(m, n, value)` is called once for each element of the tile at (m0, n0) that lies inside `size`.
template <Along kAlongA, Along kAlongB, typename A, typename B, typename C>
__device__ void tiled_product(const ProductSize& size, int m0, int n0, const A& a, const B& b, const C& c) {
  __shared__ __align__(16) float a_tile[kProductDepth][kProductTile + 4];  // [k, m]
  __shared__ __align__(16) float b_tile[kProductDepth][kProductTile + 4];  // [k, n]
  float sum[4][4] = {};
  for (std::int64_t k0 = 0; k0 < size.k; k0 += kProductDepth) {
    load_operand<kAlongA>(a_tile, a, m0, size.m, k0, size.k);
    const bool nonfinite = load_operand<kAlongB>(b_tile, b, n0, size.n, k0, size.k);
    if (__syncthreads_or(nonfinite)) {
      multiply_tiles<true>(sum, a_tile, b_tile);
    } else {
      multiply_tiles<false>(sum, a_tile, b_tile);
    }
    __syncthreads();
  }
#pragma unroll
  for (int m = 0; m < 4; ++m) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int row = m0 + static_cast<int>(threadIdx.x) / 16 * 4 + m;
      const int column = n0 + static_cast<int>(threadIdx.x) % 16 * 4 + n;
      if (row < size.m && column < size.n) c(row, column, sum[m][n]);
    }
  }
}

}  // namespace attest::cuda

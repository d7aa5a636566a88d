// SPDX-License-Identifier: Apache-2.0
// Tiles of 16-bit elements in shared memory, [rows, kColumns], in chunks of 16 bytes. Chunk c of row r lies at chunk
// position c ^ swizzle(r), so that the eight rows of a matrix load fall into different banks.
#pragma once

#include "cuda/elements.cuh"
#include "cuda/sequence.cuh"
#include "cuda/tensor_core.cuh"

namespace attest::cuda {

template <int kColumns>
struct TileLayout {
  static constexpr int kChunks = kColumns / 8;  // of a row
  static constexpr int kRowBytes = kColumns * 2;
  static constexpr int kSpan = kChunks % 8 == 0 ? 8 : 4;  // chunks that a row permutes among themselves
  static_assert(kChunks % kSpan == 0);

  static __device__ int swizzle(int row) { return kSpan == 8 ? row & 7 : (row >> 1) & 3; }
  static __device__ unsigned offset(int row, int chunk) {
    return row * kRowBytes + (((chunk % kSpan) ^ swizzle(row)) + chunk / kSpan * kSpan) * 16;
  }
  /// From the address of (row, chunk) to that of (row + rows, chunk + chunks), for `rows` a multiple of 8 and `chunks`
  /// without a bit in common with the lane's own chunk.
  static __device__ unsigned moved(unsigned address, int rows, int chunks) {
    return (address ^ ((chunks % kSpan) * 16)) + chunks / kSpan * (kSpan * 16) + rows * kRowBytes;
  }
};

/// Lane's row and chunk when a 16x16 block is loaded as four 8x8 matrices: down the rows first (operand A; transposed
/// operand B), or along the columns first (operand B; transposed operand A).
struct LanePlace {
  int row;
  int chunk;
};
__device__ inline LanePlace rows_first() {
  const int lane = threadIdx.x % 32;
  return {lane % 16, lane / 16};
}
__device__ inline LanePlace columns_first() {
  const int lane = threadIdx.x % 32;
  return {lane % 8 + lane / 16 * 8, lane / 8 % 2};
}

/// One side of a tensor tile to be loaded: token rows of one head of one sequence.
struct TileSource {
  const void* data;     // (first row of the tile, head, column 0)
  std::int64_t stride;  // elements between rows
  int rows;             // valid rows from the tile's first on; others become zero
  int width;            // valid columns
  bool vectorised;      // rows begin at multiples of 16 bytes and width is a multiple of 8
};

template <typename Element>
__device__ TileSource tile_source(const TensorView& tensor, const Sequence& s, std::int64_t first_row, int head,
                                  int row, int rows, int width, bool vectorised) {
  return {row_pointer<const Element>(tensor, s, first_row, row, head), tensor.seq, rows - row, width, vectorised};
}

template <typename Element>
__device__ uint4 gather_chunk(const Element* row, int column, int width) {
  alignas(16) Element chunk[8];
#pragma unroll
  for (int e = 0; e < 8; ++e) chunk[e] = column + e < width ? row[column + e] : Element(0.0f);
  return *reinterpret_cast<const uint4*>(chunk);
}

template <typename Element, int kRows, int kColumns, int kThreads>
__device__ void load_tile_edge(unsigned shared, const TileSource& source) {
  using Layout = TileLayout<kColumns>;
  const auto* const data = static_cast<const Element*>(source.data);
#pragma unroll 1
  for (int at = threadIdx.x; at < kRows * Layout::kChunks; at += kThreads) {
    const int row = at / Layout::kChunks;
    const int chunk = at % Layout::kChunks;
    const unsigned to = shared + Layout::offset(row, chunk);
    const bool valid = row < source.rows && chunk * 8 < source.width;
    if (source.vectorised) {
      copy_async_16(to, valid ? data + row * source.stride + chunk * 8 : data, valid);
    } else {
      uint4 value = make_uint4(0, 0, 0, 0);
      if (valid) value = gather_chunk(data + row * source.stride, chunk * 8, source.width);
      store_shared_128(to, value);
    }
  }
}

/// Starts the copies of a [kRows, kColumns] tile; the caller commits them.
template <typename Element, int kRows, int kColumns, int kThreads>
__device__ void load_tile(unsigned shared, const TileSource& source) {
  using Layout = TileLayout<kColumns>;
  if (!source.vectorised || source.rows < kRows || source.width < kColumns) {
    load_tile_edge<Element, kRows, kColumns, kThreads>(shared, source);
    return;
  }
  // Threads of one pass cover kRowStep whole rows, or (widths 96 and 192) a whole number of them in several passes.
  constexpr int kPasses = kRows * Layout::kChunks / kThreads;
  static_assert(kRows * Layout::kChunks % kThreads == 0);
  if constexpr (kThreads % Layout::kChunks == 0) {
    constexpr int kRowStep = kThreads / Layout::kChunks;
    const int row = threadIdx.x / Layout::kChunks;
    const int chunk = threadIdx.x % Layout::kChunks;
    const Element* from = static_cast<const Element*>(source.data) + row * source.stride + chunk * 8;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      copy_async_16(shared + Layout::offset(row + pass * kRowStep, chunk), from);
      from += kRowStep * source.stride;
    }
  } else {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int at = threadIdx.x + pass * kThreads;
      const int row = at / Layout::kChunks;
      const int chunk = at % Layout::kChunks;
      copy_async_16(shared + Layout::offset(row, chunk),
                    static_cast<const Element*>(source.data) + row * source.stride + chunk * 8);
    }
  }
}

/// The two elements of a word with non-finite ones replaced by 0.
template <typename Element>
__device__ unsigned finite_or_zero(unsigned word) {
  constexpr unsigned kExponent = std::is_same_v<Element, __half> ? 0x7c00u : 0x7f80u;
  if ((word & kExponent) == kExponent) word &= 0xffff0000u;
  if ((word >> 16 & kExponent) == kExponent) word &= 0x0000ffffu;
  return word;
}

/// Replaces NaN and infinity by 0; true where this thread found any. In a product, a hidden row has weight 0, but
/// 0 * NaN is NaN: partly hidden tiles go through this first. A barrier must follow.
template <typename Element, int kRows, int kColumns, int kThreads>
__device__ bool remove_nonfinite(unsigned shared) {
  bool found = false;
  for (int at = threadIdx.x; at < kRows * kColumns / 8; at += kThreads) {
    const uint4 chunk = load_shared_128(shared + at * 16);
    const uint4 clean = make_uint4(finite_or_zero<Element>(chunk.x), finite_or_zero<Element>(chunk.y),
                                   finite_or_zero<Element>(chunk.z), finite_or_zero<Element>(chunk.w));
    if (clean.x != chunk.x || clean.y != chunk.y || clean.z != chunk.z || clean.w != chunk.w) {
      store_shared_128(shared + at * 16, clean);
      found = true;
    }
  }
  return found;
}

}  // namespace attest::cuda

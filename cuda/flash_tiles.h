// SPDX-License-Identifier: Apache-2.0
// Tile sizes of cuda-flash by width: one table, read by the kernels and by their declared numerics.
#pragma once

#include <cstdint>

namespace attest::cuda {

constexpr int kFlashWidths[] = {32, 64, 96, 128, 192, 256};

/// The smallest of kFlashWidths that holds both widths, or 0.
constexpr int flash_width(std::int64_t dim, std::int64_t dim_v) {
  for (const int width : kFlashWidths) {
    if (dim <= width && dim_v <= width) return width;
  }
  return 0;
}

struct ForwardTiles {
  int rows;  // queries of a block
  int keys;  // keys of a step
  int warps;
  int blocks;  // that should fit on a multiprocessor
};

constexpr ForwardTiles forward_tiles(int width) {
  if (width <= 64) return {128, 64, 4, 3};
  if (width <= 128) return {128, 64, 4, 2};
  return {128, 64, 8, 1};
}

constexpr int kFlashSplitWidths[] = {64, 128, 256};

constexpr int flash_split_width(std::int64_t dim, std::int64_t dim_v) {
  for (const int width : kFlashSplitWidths) {
    if (dim <= width && dim_v <= width) return width;
  }
  return 0;
}

constexpr int kSplitRows = 64;  // queries of a block, and the most for which cuda-flash splits the keys
constexpr int kSplitKeys = 64;  // keys of a step

constexpr int kFlashBackwardWidths[] = {64, 128, 256};

constexpr int flash_backward_width(std::int64_t dim, std::int64_t dim_v) {
  for (const int width : kFlashBackwardWidths) {
    if (dim <= width && dim_v <= width) return width;
  }
  return 0;
}

/// How 8 warps share the products of one step; the rest of each side is divided among the other warps.
struct BackwardTiles {
  int rows;             // queries of a step
  int keys;             // keys of a block
  int score_row_warps;  // along the queries of S and dP
  int key_warps;        // along the keys of dK and dV
  int dq_row_warps;     // along the queries of dQ
  int stages;           // buffers of Q and dO
};

constexpr BackwardTiles backward_tiles(int width) {
  if (width <= 64) return {128, 128, 4, 4, 4, 2};
  if (width <= 128) return {64, 128, 2, 4, 2, 2};
  return {64, 64, 4, 2, 2, 1};
}

}  // namespace attest::cuda

// SPDX-License-Identifier: Apache-2.0
// cuda-flash, backward: how a block and its warps divide the work, and which tiles a block owns.
#pragma once

#include "cuda/flash.h"
#include "cuda/flash_tiles.h"
#include "cuda/matrix_product.cuh"
#include "cuda/sequence.cuh"

namespace attest::cuda {

template <typename Element_, int kWidth_, bool kRare_>
struct BackwardConfig {
  using Element = Element_;
  static constexpr int kWidth = kWidth_;
  static constexpr bool kRare = kRare_;
  static constexpr BackwardTiles kTiles = backward_tiles(kWidth);
  static constexpr int kRows = kTiles.rows;
  static constexpr int kKeys = kTiles.keys;
  static constexpr int kWarps = 8;
  static constexpr int kThreads = 32 * kWarps;
  // How the warps divide S and dP [kRows, kKeys], dK and dV [kKeys, kWidth], dQ [kRows, kWidth].
  static constexpr int kScoreRows = kRows / kTiles.score_row_warps;
  static constexpr int kScoreKeys = kKeys / (kWarps / kTiles.score_row_warps);
  static constexpr int kGradientKeys = kKeys / kTiles.key_warps;
  static constexpr int kGradientColumns = kWidth / (kWarps / kTiles.key_warps);
  static constexpr int kDqRows = kRows / kTiles.dq_row_warps;
  static constexpr int kDqColumns = kWidth / (kWarps / kTiles.dq_row_warps);
  static constexpr int kRowBytes = kRows * kWidth * 2;
  static constexpr int kKeyBytes = kKeys * kWidth * 2;
  static constexpr int kScoreBytes = kRows * kKeys * 2;
  static constexpr int kSharedBytes = 2 * kKeyBytes + 2 * kTiles.stages * kRowBytes + 2 * kScoreBytes;
  using Tile = TileLayout<kWidth>;
  using ScoreLayout = TileLayout<kKeys>;
};

/// Accumulators of S, then P, and of dP, then dS.
template <typename C>
using ScoreBlock = float[C::kScoreRows / 16][C::kScoreKeys / 8][4];
template <typename C>
using GradientBlock = float[C::kGradientKeys / 16][C::kGradientColumns / 8][4];
template <typename C>
using DqBlock = float[C::kDqRows / 16][C::kDqColumns / 8][4];

/// Where a block is, and the tiles of queries [first_tile, last_tile) that see any of its keys.
struct KeyPlace {
  Sequence s;
  int kv_head;
  int tile;
  int j0;
  int first_tile;
  int last_tile;
};

template <typename C>
__device__ KeyPlace place_keys(const Arguments& args, int block) {
  KeyPlace at;
  const int tiles = (args.max_k + C::kKeys - 1) / C::kKeys;
  at.tile = block % tiles;
  at.kv_head = block / tiles % args.heads_kv;
  at.s = sequence_of(args, block / tiles / args.heads_kv);
  at.j0 = at.tile * C::kKeys;
  const int end = min(at.j0 + C::kKeys, at.s.sk);
  const int first_row = max(0, at.j0 - at.s.last_shift + 1);
  const int last_row = min(at.s.sq, end - at.s.first_shift);
  at.first_tile = first_row / C::kRows;
  at.last_tile = first_row < last_row ? (last_row + C::kRows - 1) / C::kRows : at.first_tile;
  return at;
}

/// Index of a tile of queries among the tiles of all sequences; packed sequences begin at any row.
template <typename C>
__device__ std::int64_t query_tile_index(const Arguments& args, const Sequence& s, int h, int tile) {
  const std::int64_t first = args.cu_q != nullptr
                                 ? s.row_q / C::kRows + s.b
                                 : static_cast<std::int64_t>(s.b) * ((args.max_q + C::kRows - 1) / C::kRows);
  return (first + tile) * args.heads_q + h;
}

}  // namespace attest::cuda

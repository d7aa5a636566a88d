// SPDX-License-Identifier: Apache-2.0
// d_bias: dS without the softcap's derivative, because the bias is added after the softcap, summed over the dimensions
// that the bias broadcasts. Each piece of work owns some elements of d_bias and adds to them in a fixed order.
#include <algorithm>

#include "reference/oracle/gradient_tile.h"

namespace attest {
namespace {

/// Elements of d_bias with this sequence, head and rows (indices of its own dimensions).
struct Piece {
  std::int64_t b;
  std::int64_t h;
  std::int64_t first_row;
};

void add_tile(GradientTile& tile, const RowBlock& block, std::int64_t first_key, Operand<double>& d_bias) {
  const MatrixRef ds = tile.ds();  // [rows, keys]
  for (std::int64_t r = 0; r < ds.rows(); ++r) {
    for (std::int64_t n = 0; n < ds.cols(); ++n) {
      d_bias.data[d_bias.index(block.head.b, block.head.h, block.i + r, first_key + n)] += ds(r, n);
    }
  }
}

void add_block(const RowBlock& block, const Inputs& inputs, const Scores& scores, GradientTile& tile, Exact& exact) {
  tile.start_block(block, inputs, exact);
  const KeyRange keys = scores.keys_of(block.head.b, block.i, block.count);
  for (std::int64_t j = keys.first; j < keys.last; j += kTileKeys) {
    tile.compute(block, j, std::min(kTileKeys, keys.last - j), inputs, scores, exact, Softcap::left_out);
    add_tile(tile, block, j, exact.d_bias);
  }
}

void add_piece(const Problem& problem, const Piece& piece, const Inputs& inputs, const Scores& scores,
               GradientTile& tile, Exact& exact) {
  const Operand<double>& d_bias = exact.d_bias;
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    if (d_bias.extent_b > 1 && b != piece.b) continue;
    for (std::int64_t h = 0; h < problem.heads_q; ++h) {
      if (d_bias.extent_h > 1 && h != piece.h) continue;
      std::vector<RowBlock> blocks;
      append_row_blocks(head_slice(problem, b, h), blocks);
      for (const RowBlock& block : blocks) {
        if (d_bias.extent_q > 1 && block.i != piece.first_row) continue;
        add_block(block, inputs, scores, tile, exact);
      }
    }
  }
}

}  // namespace

void sweep_bias_gradient(const Problem& problem, const Inputs& inputs, const Scores& scores, Exact& exact) {
  const Operand<double>& d_bias = exact.d_bias;
  std::vector<Piece> pieces;
  for (std::int64_t b = 0; b < d_bias.extent_b; ++b) {
    for (std::int64_t h = 0; h < d_bias.extent_h; ++h) {
      for (std::int64_t i = 0; i < d_bias.extent_q; i += kBlockRows) pieces.push_back({b, h, i});
    }
  }
  const std::int64_t count = static_cast<std::int64_t>(pieces.size());
#pragma omp parallel if (flops(problem, 1) > kThreadedFlops)
  {
    GradientTile tile;
#pragma omp for schedule(dynamic)
    for (std::int64_t n = 0; n < count; ++n) add_piece(problem, pieces[n], inputs, scores, tile, exact);
  }
}

}  // namespace attest

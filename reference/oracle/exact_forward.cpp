// SPDX-License-Identifier: Apache-2.0
// O and LSE: for each block of queries all its scores at once, then softmax and the product with V.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "reference/oracle/exponential.h"
#include "reference/oracle/matrix_view.h"
#include "reference/oracle/sweep.h"

namespace attest {
namespace {

constexpr double kNegInf = -std::numeric_limits<double>::infinity();

// The scores of a block become exp(s - max) in place; `sums` gets their row sums, `lse` their logarithm.
void softmax_rows(const RowBlock& block, KeyRange keys, const Scores& scores, MatrixRef s /* [rows, keys] */,
                  Eigen::ArrayXd& sums /* [rows] */, double* lse, std::int64_t lse_stride) {
  const std::int64_t width = keys.last - keys.first;
  for (std::int64_t r = 0; r < block.count; ++r) {
    double* row = s.row(r).data();
    scores.finish(block.head.b, block.head.h, block.i + r, keys.first,
                  std::span<double>(row, static_cast<std::size_t>(width)));
    const double top = width > 0 ? Eigen::Map<const Eigen::ArrayXd>(row, width).maxCoeff() : kNegInf;
    sums[r] = exponential_row(row, width, top == kNegInf ? 0 : top);
    lse[r * lse_stride] = top == kNegInf ? kNegInf : top + std::log(sums[r]);
  }
}

void drop(const RowBlock& block, KeyRange keys, const Scores& scores, MatrixRef p /* [rows, keys] */) {
  Eigen::ArrayXd factor(keys.last - keys.first);
  for (std::int64_t r = 0; r < block.count; ++r) {
    scores.dropout_factors(block.head.b, block.head.h, block.i + r, keys.first,
                           std::span<double>(factor.data(), static_cast<std::size_t>(factor.size())));
    p.row(r).array() *= factor.transpose();
  }
}

void forward_block(const RowBlock& block, const Inputs& inputs, const Scores& scores, Matrix& scratch, Exact& exact) {
  const HeadSlice& head = block.head;
  const KeyRange keys = scores.keys_of(head.b, block.i, block.count);
  const std::int64_t width = keys.last - keys.first;
  if (scratch.rows() == 0 || scratch.cols() < width) scratch.resize(kBlockRows, (width + 7) / 8 * 8);
  MatrixRef s = scratch.topLeftCorner(block.count, width);  // [rows, keys]
  const ConstRows q = rows_of(inputs.q, head.h, head.first_q + block.i, block.count);
  for (std::int64_t n = 0; n < width; n += kTileKeys) {
    const std::int64_t tile = std::min(kTileKeys, width - n);
    s.middleCols(n, tile).noalias() =
        q * rows_of(inputs.k, head.head_kv, head.first_k + keys.first + n, tile).transpose();
  }

  Eigen::ArrayXd sums(block.count);
  double* lse = exact.lse.data() + (head.first_q + block.i) * exact.o.heads + head.h;
  softmax_rows(block, keys, scores, s, sums, lse, exact.o.heads);
  if (scores.has_dropout()) drop(block, keys, scores, s);

  Matrix o = Matrix::Zero(block.count, exact.o.width);  // [rows, Dv]
  for (std::int64_t n = 0; n < width; n += kTileKeys) {
    const std::int64_t tile = std::min(kTileKeys, width - n);
    o.noalias() += s.middleCols(n, tile) * rows_of(inputs.v, head.head_kv, head.first_k + keys.first + n, tile);
  }
  Rows out = rows_of(exact.o, head.h, head.first_q + block.i, block.count);
  for (std::int64_t r = 0; r < block.count; ++r) {
    if (sums[r] > 0) out.row(r) = o.row(r) / sums[r];  // a row that sees nothing stays 0
  }
}

}  // namespace

void sweep_forward(const Problem& problem, const Inputs& inputs, const Scores& scores, Exact& exact) {
  std::vector<RowBlock> blocks;
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    for (std::int64_t h = 0; h < problem.heads_q; ++h) append_row_blocks(head_slice(problem, b, h), blocks);
  }
  const std::int64_t count = static_cast<std::int64_t>(blocks.size());
#pragma omp parallel if (flops(problem, 1) > kThreadedFlops)
  {
    Matrix scratch;
#pragma omp for schedule(dynamic)
    for (std::int64_t n = 0; n < count; ++n) forward_block(blocks[n], inputs, scores, scratch, exact);
  }
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
#include "reference/oracle/gradient_tile.h"

#include <limits>
#include <span>

#include "reference/oracle/exponential.h"

namespace attest {

GradientTile::GradientTile()
    : p_(kBlockRows, kTileKeys), ds_(kBlockRows, kTileKeys), slope_(kTileKeys), factor_(kTileKeys), delta_(kBlockRows) {
}

void GradientTile::start_block(const RowBlock& block, const Inputs& inputs, const Exact& exact) {
  const std::int64_t first = block.head.first_q + block.i;
  const ConstRows d_o = rows_of(inputs.d_o, block.head.h, first, block.count);  // [rows, Dv]
  const ConstRows o = rows_of(exact.o, block.head.h, first, block.count);       // [rows, Dv]
  for (std::int64_t r = 0; r < block.count; ++r) {
    double sum = 0;
    for (std::int64_t c = 0; c < o.cols(); ++c) sum += d_o(r, c) * o(r, c);
    if (!inputs.d_lse.empty()) sum -= inputs.d_lse[(first + r) * exact.o.heads + block.head.h];
    delta_[r] = sum;
  }
}

void GradientTile::compute(const RowBlock& block, std::int64_t first_key, std::int64_t count, const Inputs& inputs,
                           const Scores& scores, const Exact& exact, Softcap softcap) {
  const HeadSlice& head = block.head;
  rows_ = block.count;
  count_ = count;
  const std::int64_t first = head.first_q + block.i;
  p().noalias() = rows_of(inputs.q, head.h, first, rows_) *
                  rows_of(inputs.k, head.head_kv, head.first_k + first_key, count).transpose();
  ds().noalias() = rows_of(inputs.d_o, head.h, first, rows_) *
                   rows_of(inputs.v, head.head_kv, head.first_k + first_key, count).transpose();
  const std::size_t width = static_cast<std::size_t>(count);
  const bool wants_slope = scores.has_softcap() && softcap == Softcap::differentiated;
  const std::span<double> slope(slope_.data(), wants_slope ? width : 0);
  for (std::int64_t r = 0; r < rows_; ++r) {
    double* p_row = p_.row(r).data();
    double* ds_row = ds_.row(r).data();
    scores.finish(head.b, head.h, block.i + r, first_key, {p_row, width}, slope);
    const double lse = exact.lse[(first + r) * exact.o.heads + head.h];
    exponential_row(p_row, count, lse == -std::numeric_limits<double>::infinity() ? 0 : lse);
    if (scores.has_dropout()) scores.dropout_factors(head.b, head.h, block.i + r, first_key, {factor_.data(), width});
    finish_row(p_row, ds_row, delta_[r], scores.has_dropout());
    for (std::size_t n = 0; n < slope.size(); ++n) ds_row[n] *= slope[n];
  }
}

// P and <do, v> of a row become Z/(1-p) P and P (Z/(1-p) <do, v> - delta).
void GradientTile::finish_row(double* p_row, double* ds_row, double delta, bool dropped) const {
  if (!dropped) {
    for (std::int64_t n = 0; n < count_; ++n) ds_row[n] = p_row[n] * (ds_row[n] - delta);
    return;
  }
  for (std::int64_t n = 0; n < count_; ++n) {
    ds_row[n] = p_row[n] * (ds_row[n] * factor_[n] - delta);
    p_row[n] *= factor_[n];
  }
}

}  // namespace attest

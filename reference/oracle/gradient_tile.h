// SPDX-License-Identifier: Apache-2.0
// P and dS of one tile (a block of queries x some keys), recomputed from the LSE; what every backward sweep is made of.
#pragma once

#include "reference/oracle/matrix_view.h"
#include "reference/oracle/sweep.h"

namespace attest {

/// Whether dS carries the derivative of the softcap (dq, dk) or stops before it (d_bias).
enum class Softcap : std::uint8_t { differentiated, left_out };

/// Room for one tile; every thread has its own.
class GradientTile {
 public:
  GradientTile();

  /// Fills p() and ds() for the block and keys [first, first + count), count <= kTileKeys. Hidden pairs are 0.
  void compute(const RowBlock& block, std::int64_t first_key, std::int64_t count, const Inputs& inputs,
               const Scores& scores, const Exact& exact, Softcap softcap);
  /// delta_i = <do_i, o_i> - dlse_i of the block's rows; before compute().
  void start_block(const RowBlock& block, const Inputs& inputs, const Exact& exact);

  MatrixRef p() { return p_.topLeftCorner(rows_, count_); }    // [rows, count], Z / (1 - p) P
  MatrixRef ds() { return ds_.topLeftCorner(rows_, count_); }  // [rows, count], not yet times the scale

 private:
  void finish_row(double* p_row, double* ds_row, double delta, bool dropped) const;

  std::int64_t rows_ = 0;
  std::int64_t count_ = 0;
  Matrix p_;               // [kBlockRows, kTileKeys]
  Matrix ds_;              // [kBlockRows, kTileKeys]
  Eigen::ArrayXd slope_;   // [kTileKeys]
  Eigen::ArrayXd factor_;  // [kTileKeys]
  Eigen::ArrayXd delta_;   // [kBlockRows]
};

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// Operands of the bound's products: rows of one head divided by a power of two, their squares (or magnitudes), and
// the norms of each row.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "reference/oracle/matrix_view.h"

namespace attest {

template <typename Real>
using RealMatrix = Eigen::Matrix<Real, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Power of two that brings the largest magnitude into [1/2, 1); 1 for a tensor of zeros.
inline double unit_of(const Values& values) {
  double largest = 0;
  for (const double x : values.data) largest = std::max(largest, std::abs(x));
  if (largest == 0 || !std::isfinite(largest)) return 1;
  int exponent;
  std::frexp(largest, &exponent);
  return std::ldexp(1.0, exponent);
}

template <typename Real>
struct BoundOperand {
  RealMatrix<Real> x;                           // [rows, width] in units
  RealMatrix<Real> weight;                      // [rows, width] x^2, or |x|
  Eigen::Array<Real, 1, Eigen::Dynamic> norm2;  // [rows]
  Eigen::Array<Real, 1, Eigen::Dynamic> norm4;  // [rows]

  void load(const ConstRows& rows, double unit, bool squares) {
    x = (rows / unit).template cast<Real>();
    // Squares that are not zero stay clear of the end of the range.
    const Real least = sizeof(Real) == 4 ? static_cast<Real>(1e-36) : static_cast<Real>(1e-290);
    if (squares) {
      weight = x.unaryExpr([least](Real v) { return v == 0 ? Real(0) : std::max(v * v, least); });
    } else {
      weight = x.cwiseAbs();
    }
    norm2 = x.rowwise().norm().transpose().array();
    norm4 = x.array().square().square().rowwise().sum().sqrt().sqrt().transpose();
  }
};

}  // namespace attest

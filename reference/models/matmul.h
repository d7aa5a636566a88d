// SPDX-License-Identifier: Apache-2.0
// Products of tiles. Every element is one chain: products are added one by one in the order of the inner index, so a
// result does not depend on blocking, on the vector width or on what stands beside it.
#pragma once

#include <cstdint>

namespace attest {

/// A row-major matrix whose rows are `stride` elements apart.
template <typename Real>
struct Matrix {
  Real* data;
  std::int64_t stride;
  Real* row(std::int64_t i) const { return data + i * stride; }
};

/// C += A B with A [rows, depth], B [depth, cols], C [rows, cols].
template <typename Real>
void multiply_add(std::int64_t rows, std::int64_t cols, std::int64_t depth, Matrix<const Real> a, Matrix<const Real> b,
                  Matrix<Real> c);

/// The same, but a term (i, k) is left out where seen(i, k) is -inf (transposed: seen(k, i)): for B with NaN or
/// infinity in rows that row i of C must not see, where 0 * NaN would let them in.
template <typename Real>
void multiply_add_seen(std::int64_t rows, std::int64_t cols, std::int64_t depth, Matrix<const Real> a,
                       Matrix<const Real> b, Matrix<Real> c, Matrix<const Real> seen, bool transposed);

/// to [cols, rows] := transpose of from [rows, cols].
template <typename Real>
void transpose(std::int64_t rows, std::int64_t cols, Matrix<const Real> from, Matrix<Real> to);

}  // namespace attest

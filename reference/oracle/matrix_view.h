// SPDX-License-Identifier: Apache-2.0
// Eigen views of one head of a Values, and the matrix types of the oracle. Private to the oracle.
#pragma once

#include <Eigen/Core>
#include <cstdint>

#include "reference/problem/values.h"

namespace attest {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using MatrixRef = Eigen::Ref<Matrix, 0, Eigen::OuterStride<>>;
using Rows = Eigen::Map<Matrix, 0, Eigen::OuterStride<>>;
using ConstRows = Eigen::Map<const Matrix, 0, Eigen::OuterStride<>>;

/// Tokens first ... first + count - 1 of one head.  [count, width]
inline ConstRows rows_of(const Values& values, std::int64_t head, std::int64_t first, std::int64_t count) {
  return {values.data.data() + (first * values.heads + head) * values.width, count, values.width,
          Eigen::OuterStride<>(values.heads * values.width)};
}
inline Rows rows_of(Values& values, std::int64_t head, std::int64_t first, std::int64_t count) {
  return {values.data.data() + (first * values.heads + head) * values.width, count, values.width,
          Eigen::OuterStride<>(values.heads * values.width)};
}

}  // namespace attest

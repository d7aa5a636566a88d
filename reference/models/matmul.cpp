// SPDX-License-Identifier: Apache-2.0
#include "reference/models/matmul.h"

#include <cstring>
#include <limits>

namespace attest {
namespace {

#ifdef __AVX__
constexpr std::size_t kVectorBytes = 32;
#else
constexpr std::size_t kVectorBytes = 16;
#endif

template <typename Real>
struct Lanes {
  typedef Real Type __attribute__((vector_size(kVectorBytes)));
  static constexpr std::int64_t kCount = kVectorBytes / sizeof(Real);
};

template <typename Real>
typename Lanes<Real>::Type load_lanes(const Real* from) {
  typename Lanes<Real>::Type x;
  std::memcpy(&x, from, sizeof x);
  return x;
}

/// kRows x (kVectors * lanes) elements of C, held in registers over the whole depth.
template <int kRows, int kVectors, typename Real>
void register_block(std::int64_t depth, Matrix<const Real> a, Matrix<const Real> b, Matrix<Real> c) {
  using Vector = typename Lanes<Real>::Type;
  constexpr std::int64_t n = Lanes<Real>::kCount;
  Vector sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) sum[r][v] = load_lanes(c.row(r) + v * n);
  for (std::int64_t k = 0; k < depth; ++k) {
    Vector from_b[kVectors];
    for (int v = 0; v < kVectors; ++v) from_b[v] = load_lanes(b.row(k) + v * n);
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kVectors; ++v) sum[r][v] += a.row(r)[k] * from_b[v];
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) std::memcpy(c.row(r) + v * n, &sum[r][v], sizeof(Vector));
}

template <int kRows, typename Real>
void strip(std::int64_t cols, std::int64_t depth, Matrix<const Real> a, Matrix<const Real> b, Matrix<Real> c) {
  constexpr std::int64_t n = Lanes<Real>::kCount;
  std::int64_t j = 0;
  const auto at = [](auto matrix, std::int64_t column) {
    matrix.data += column;
    return matrix;
  };
  for (; j + 2 * n <= cols; j += 2 * n) register_block<kRows, 2>(depth, a, at(b, j), at(c, j));
  for (; j + n <= cols; j += n) register_block<kRows, 1>(depth, a, at(b, j), at(c, j));
  for (; j < cols; ++j)
    for (int r = 0; r < kRows; ++r) {
      Real sum = c.row(r)[j];
      for (std::int64_t k = 0; k < depth; ++k) sum += a.row(r)[k] * b.row(k)[j];
      c.row(r)[j] = sum;
    }
}

}  // namespace

template <typename Real>
void multiply_add(std::int64_t rows, std::int64_t cols, std::int64_t depth, Matrix<const Real> a, Matrix<const Real> b,
                  Matrix<Real> c) {
  std::int64_t i = 0;
  const auto below = [](auto matrix, std::int64_t row) {
    matrix.data += row * matrix.stride;
    return matrix;
  };
  for (; i + 4 <= rows; i += 4) strip<4>(cols, depth, below(a, i), b, below(c, i));
  for (; i < rows; ++i) strip<1>(cols, depth, below(a, i), b, below(c, i));
}

template <typename Real>
void multiply_add_seen(std::int64_t rows, std::int64_t cols, std::int64_t depth, Matrix<const Real> a,
                       Matrix<const Real> b, Matrix<Real> c, Matrix<const Real> seen, bool transposed) {
  constexpr Real kHidden = -std::numeric_limits<Real>::infinity();
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t k = 0; k < depth; ++k) {
      if ((transposed ? seen.row(k)[i] : seen.row(i)[k]) == kHidden) continue;
      for (std::int64_t j = 0; j < cols; ++j) c.row(i)[j] += a.row(i)[k] * b.row(k)[j];
    }
}

template <typename Real>
void transpose(std::int64_t rows, std::int64_t cols, Matrix<const Real> from, Matrix<Real> to) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j) to.row(j)[i] = from.row(i)[j];
}

#define ATTEST_INSTANTIATE(Real)                                                                                    \
  template void multiply_add(std::int64_t, std::int64_t, std::int64_t, Matrix<const Real>, Matrix<const Real>,      \
                             Matrix<Real>);                                                                         \
  template void multiply_add_seen(std::int64_t, std::int64_t, std::int64_t, Matrix<const Real>, Matrix<const Real>, \
                                  Matrix<Real>, Matrix<const Real>, bool);                                          \
  template void transpose(std::int64_t, std::int64_t, Matrix<const Real>, Matrix<Real>);
ATTEST_INSTANTIATE(float)
ATTEST_INSTANTIATE(double)
#undef ATTEST_INSTANTIATE

}  // namespace attest

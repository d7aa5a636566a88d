// SPDX-License-Identifier: Apache-2.0
#include "reference/models/tensor_core.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace attest {
namespace {

constexpr int kNoExponent = -100000;

int exponent_of(float x) { return x == 0 || !std::isfinite(x) ? kNoExponent : std::ilogb(x); }

float toward_zero(double x) {
  const auto nearest = static_cast<float>(x);
  return std::abs(static_cast<double>(nearest)) > std::abs(x) ? std::nextafterf(nearest, 0.0f) : nearest;
}

/// One rounding of relative size u_norm: to as many significand bits as that leaves.
float rounded(double x, const attest_accumulation& how) {
  if (x == 0 || !std::isfinite(x)) return static_cast<float>(x);
  const int bits = static_cast<int>(std::lround(-std::log2(how.u_norm))) + (how.truncates ? 1 : 0);
  if (bits >= 24) return how.truncates ? toward_zero(x) : static_cast<float>(x);
  const double unit = std::ldexp(1.0, std::ilogb(x) - (bits - 1));
  return static_cast<float>((how.truncates ? std::trunc(x / unit) : std::nearbyint(x / unit)) * unit);
}

struct Product {
  double value;  // exact
  int exponent;  // sum of the factors' exponents, so that the significand lies in [1, 4)
};

Product product(float a, float b) {
  const double value = static_cast<double>(a) * static_cast<double>(b);
  return {value, value == 0 ? kNoExponent : exponent_of(a) + exponent_of(b)};
}

/// c plus up to `how.block` exact products.
float add_block(const attest_accumulation& how, const std::vector<Product>& products, float c) {
  double sum = 0;
  int largest = exponent_of(c);
  for (const Product& x : products) {
    sum += x.value;
    largest = std::max(largest, x.exponent);
  }
  if (how.aligner_bits == 0 || !std::isfinite(sum + static_cast<double>(c)))
    return rounded(sum + static_cast<double>(c), how);
  if (largest == kNoExponent) return c;
  const double to_units = std::ldexp(1.0, how.aligner_bits - largest);
  sum = std::trunc(static_cast<double>(c) * to_units);
  for (const Product& x : products) sum += std::trunc(x.value * to_units);
  return rounded(sum / to_units, how);
}

}  // namespace

void multiply_add_blocks(const attest_accumulation& how, std::int64_t rows, std::int64_t cols, std::int64_t depth,
                         Matrix<const float> a, Matrix<const float> b, Matrix<float> c, const Matrix<const float>* seen,
                         bool transposed) {
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  const std::int64_t promote = how.promote > 0 ? how.promote : depth;
  std::vector<Product> products;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j) {
      float& to = c.row(i)[j];
      for (std::int64_t first = 0; first < depth; first += promote) {
        const std::int64_t last = std::min(depth, first + promote);
        float part = how.promote > 0 ? 0.0f : to;
        for (std::int64_t k = first; k < last; k += how.block) {
          products.clear();
          for (std::int64_t n = k; n < std::min<std::int64_t>(last, k + how.block); ++n)
            if (seen == nullptr || (transposed ? seen->row(n)[i] : seen->row(i)[n]) != kHidden)
              products.push_back(product(a.row(i)[n], b.row(n)[j]));
          part = add_block(how, products, part);
        }
        to = how.promote > 0 ? to + part : part;
      }
    }
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// A binary floating-point number of 256 bits (MPFR, rounded to nearest) with the operators that a formula needs; of
// more bits where a BigFloat::Precision says so. The digits lie inside the object: no allocation, plain copies. Its
// exponents reach 2^30, so nothing that is finite in double overflows or vanishes on the way; infinities and NaN
// follow IEEE 754.
#pragma once

#include <mpfr.h>

#include <cstdint>

namespace attest {

class BigFloat {
 public:
  static constexpr mpfr_prec_t kBits = 256;
  static constexpr mpfr_prec_t kMostBits = 2048;

  /// While it lives, numbers that this thread makes have `bits` bits.
  class Precision {
   public:
    explicit Precision(mpfr_prec_t bits) : before_(thread_.bits) { thread_.bits = bits < kMostBits ? bits : kMostBits; }
    ~Precision() { thread_.bits = before_; }
    Precision(const Precision&) = delete;
    Precision& operator=(const Precision&) = delete;

   private:
    mpfr_prec_t before_;
  };

  BigFloat() { mpfr_custom_init_set(value_, MPFR_ZERO_KIND, 0, thread_.bits, digits_); }
  BigFloat(double value) : BigFloat() { mpfr_set_d(value_, value, MPFR_RNDN); }  // every double is exact
  BigFloat(const BigFloat& other) : BigFloat() { mpfr_set(value_, other.value_, MPFR_RNDN); }
  BigFloat& operator=(const BigFloat& other) {
    mpfr_set(value_, other.value_, MPFR_RNDN);
    return *this;
  }

  /// The nearest double, ties to even, subnormals and infinities included: one rounding.
  double to_double() const { return mpfr_get_d(value_, MPFR_RNDN); }

  BigFloat& operator+=(const BigFloat& x) {
    mpfr_add(value_, value_, x.value_, MPFR_RNDN);
    return *this;
  }
  BigFloat& operator-=(const BigFloat& x) {
    mpfr_sub(value_, value_, x.value_, MPFR_RNDN);
    return *this;
  }
  BigFloat& operator*=(const BigFloat& x) {
    mpfr_mul(value_, value_, x.value_, MPFR_RNDN);
    return *this;
  }
  BigFloat& operator/=(const BigFloat& x) {
    mpfr_div(value_, value_, x.value_, MPFR_RNDN);
    return *this;
  }
  /// *this += x * y, rounded once.
  void add_product(const BigFloat& x, const BigFloat& y) { mpfr_fma(value_, x.value_, y.value_, value_, MPFR_RNDN); }

  friend BigFloat operator+(BigFloat x, const BigFloat& y) { return x += y; }
  friend BigFloat operator-(BigFloat x, const BigFloat& y) { return x -= y; }
  friend BigFloat operator*(BigFloat x, const BigFloat& y) { return x *= y; }
  friend BigFloat operator/(BigFloat x, const BigFloat& y) { return x /= y; }
  friend BigFloat operator-(BigFloat x) {
    mpfr_neg(x.value_, x.value_, MPFR_RNDN);
    return x;
  }
  friend bool operator<(const BigFloat& x, const BigFloat& y) { return mpfr_less_p(x.value_, y.value_) != 0; }
  friend bool operator==(const BigFloat& x, const BigFloat& y) { return mpfr_equal_p(x.value_, y.value_) != 0; }

  friend BigFloat abs(BigFloat x) {
    mpfr_abs(x.value_, x.value_, MPFR_RNDN);
    return x;
  }
  friend BigFloat exp(BigFloat x) {
    mpfr_exp(x.value_, x.value_, MPFR_RNDN);
    return x;
  }
  friend BigFloat log(BigFloat x) {
    mpfr_log(x.value_, x.value_, MPFR_RNDN);
    return x;
  }
  friend BigFloat tanh(BigFloat x) {
    mpfr_tanh(x.value_, x.value_, MPFR_RNDN);
    return x;
  }
  /// 1 / cosh(x); its square is 1 - tanh(x)^2 without the cancellation.
  friend BigFloat sech(BigFloat x) {
    mpfr_sech(x.value_, x.value_, MPFR_RNDN);
    return x;
  }

 private:
  /// MPFR keeps constants and scratch numbers for each thread, and frees none of them when a thread ends.
  struct Thread {
    mpfr_prec_t bits;
    ~Thread() { mpfr_free_cache2(MPFR_FREE_LOCAL_CACHE); }
  };
  static inline thread_local Thread thread_{kBits};

  mp_limb_t digits_[kMostBits / (8 * sizeof(mp_limb_t))];
  mpfr_t value_;
};

}  // namespace attest

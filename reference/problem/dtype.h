// SPDX-License-Identifier: Apache-2.0
// Storage types and exact rounding to them, in plain C++ (no hardware conversions, no dependencies).
//
//   double stored = round_to(Dtype::bf16, 0.1);   // 0.10009765625
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace attest {

enum class Dtype : std::uint8_t { f64, f32, f16, bf16, f8e4m3, f8e5m2 };

inline constexpr Dtype kDtypes[] = {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::f8e4m3, Dtype::f8e5m2};

/// What a value too large for the type becomes. `ieee`: infinity (NaN for f8e4m3, which has no
/// infinity). `saturate`: the largest finite value of that sign (infinities too; NaN stays NaN).
enum class Overflow : std::uint8_t { ieee, saturate };

/// A binary floating-point format; `precision` counts the hidden bit.
struct DtypeFormat {
  int bytes;
  int precision;      // significand bits: 53, 24, 11, 8, 4, 3
  int exponent_bits;  // 11, 8, 5, 8, 4, 5
  int min_exponent;   // exponent of the smallest normal: -1022, -126, -14, -126, -6, -14
  double max;         // largest finite value
  bool has_infinity;

  double unit_roundoff() const;  // 2^-precision
  double min_normal() const;     // 2^min_exponent
  double min_subnormal() const;  // 2^(min_exponent - precision + 1)
};

const DtypeFormat& format_of(Dtype type);
std::string_view name_of(Dtype type);
std::optional<Dtype> dtype_from_name(std::string_view name);

/// f8 types saturate by default, as kernels of the field do; all others follow IEEE 754.
Overflow default_overflow(Dtype type);

/// The value of `type` nearest to `value`, ties to even, subnormals kept, signed zero kept, one rounding.
double round_to(Dtype type, double value);
double round_to(Dtype type, double value, Overflow overflow);

/// Bit pattern of round_to(type, value), in the low bytes. NaN gives the type's quiet NaN.
std::uint64_t encode(Dtype type, double value);
std::uint64_t encode(Dtype type, double value, Overflow overflow);
/// Exact value of a bit pattern.
double decode(Dtype type, std::uint64_t bits);

/// One element at `address` (any alignment).
void store(Dtype type, double value, std::byte* address);
double load(Dtype type, const std::byte* address);

/// `values.size()` contiguous elements.
void store_all(Dtype type, std::span<const double> values, std::byte* address);
void load_all(Dtype type, const std::byte* address, std::span<double> values);

/// Each value becomes round_to(type, value, overflow).
void round_all(Dtype type, std::span<double> values, Overflow overflow);

}  // namespace attest

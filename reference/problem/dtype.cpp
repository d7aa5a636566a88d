// SPDX-License-Identifier: Apache-2.0
// Conversions between double and the storage types, on bit patterns. Every rounding is one integer rounding of the
// double's 53-bit significand, so it does not depend on the rounding mode, on flush-to-zero or on the machine.
#include "reference/problem/dtype.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace attest {
namespace {

constexpr int kDoubleBias = 1023;
constexpr int kDoubleFraction = 52;
constexpr std::uint64_t kDoubleSign = std::uint64_t{1} << 63;
constexpr std::uint64_t kDoubleInfinity = std::uint64_t{0x7FF} << kDoubleFraction;
constexpr std::uint64_t kDoubleHiddenBit = std::uint64_t{1} << kDoubleFraction;

/// Codes of a type narrower than double. A code without its sign grows with the magnitude it stands for, and the
/// code after the largest finite one is what IEEE overflow gives: infinity, or the NaN of f8e4m3.
template <typename Word_, int precision_, int exponent_bits_, std::uint64_t max_code_, std::uint64_t nan_code_>
struct Narrow {
  using Word = Word_;
  static constexpr int precision = precision_;
  static constexpr int min_exponent = 2 - (1 << (exponent_bits_ - 1));
  static constexpr std::uint64_t sign = std::uint64_t{1} << (8 * sizeof(Word) - 1);
  static constexpr std::uint64_t max_code = max_code_;
  static constexpr std::uint64_t nan_code = nan_code_;
  static constexpr bool has_infinity = nan_code_ != max_code_ + 1;
};

using F32 = Narrow<std::uint32_t, 24, 8, 0x7F7FFFFF, 0x7FC00000>;
using F16 = Narrow<std::uint16_t, 11, 5, 0x7BFF, 0x7E00>;
using Bf16 = Narrow<std::uint16_t, 8, 8, 0x7F7F, 0x7FC0>;
using F8e4m3 = Narrow<std::uint8_t, 4, 4, 0x7E, 0x7F>;
using F8e5m2 = Narrow<std::uint8_t, 3, 5, 0x7B, 0x7E>;

/// `bits` / 2^shift to the nearest integer, ties to even; shift in 1..63.
constexpr std::uint64_t shift_right_rounded(std::uint64_t bits, int shift) {
  return (bits + ((std::uint64_t{1} << (shift - 1)) - 1) + ((bits >> shift) & 1)) >> shift;
}

/// Code of the double with bits `magnitude` (no sign, no NaN), as if the type had no largest value.
template <typename Type>
constexpr std::uint64_t round_magnitude(std::uint64_t magnitude) {
  constexpr int kShift = kDoubleFraction - (Type::precision - 1);
  constexpr std::uint64_t kMinExponent = kDoubleBias + Type::min_exponent;  // as biased in double
  const std::uint64_t exponent = magnitude >> kDoubleFraction;
  if (exponent >= kMinExponent) {
    // A carry out of the fraction moves into the exponent, which is the right next code.
    return shift_right_rounded(magnitude, kShift) - ((kMinExponent - 1) << (Type::precision - 1));
  }
  const std::uint64_t shift = kShift + (kMinExponent - exponent);
  if (shift > kDoubleFraction + 1) return 0;  // below half of the smallest subnormal
  const std::uint64_t significand = (magnitude & (kDoubleHiddenBit - 1)) | kDoubleHiddenBit;
  return shift_right_rounded(significand, static_cast<int>(shift));
}

/// `limit`: the largest code that a finite value or infinity may give.
template <typename Type>
constexpr typename Type::Word encode_as(double value, std::uint64_t limit) {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t magnitude = bits & ~kDoubleSign;
  if (magnitude > kDoubleInfinity) return static_cast<typename Type::Word>(Type::nan_code);
  const std::uint64_t code = std::min(round_magnitude<Type>(magnitude), limit);
  return static_cast<typename Type::Word>(code | (bits & kDoubleSign ? Type::sign : 0));
}

template <typename Type>
constexpr std::uint64_t limit_of(Overflow overflow) {
  return overflow == Overflow::saturate ? Type::max_code : Type::max_code + 1;
}

template <typename Type>
constexpr double decode_as(std::uint64_t bits) {
  constexpr int kShift = kDoubleFraction - (Type::precision - 1);
  constexpr std::uint64_t kHiddenBit = std::uint64_t{1} << (Type::precision - 1);
  constexpr std::uint64_t kRebias = std::uint64_t{kDoubleBias + Type::min_exponent - 1} << kDoubleFraction;
  constexpr double kMinSubnormal =
      std::bit_cast<double>(std::uint64_t{kDoubleBias + Type::min_exponent - Type::precision + 1} << kDoubleFraction);
  const std::uint64_t code = bits & (Type::sign - 1);
  const std::uint64_t sign = bits & Type::sign ? kDoubleSign : 0;
  std::uint64_t magnitude = (code << kShift) + kRebias;
  if (code < kHiddenBit) magnitude = std::bit_cast<std::uint64_t>(static_cast<double>(code) * kMinSubnormal);
  if (code > Type::max_code) {
    const bool infinite = Type::has_infinity && code == Type::max_code + 1;
    magnitude = infinite ? kDoubleInfinity : kDoubleInfinity | (kDoubleHiddenBit >> 1);
  }
  return std::bit_cast<double>(magnitude | sign);
}

/// Every value of an 8-bit type, by code.
template <typename Type>
constexpr std::array<double, 256> kValues = [] {
  std::array<double, 256> values{};
  for (std::uint64_t code = 0; code < 256; ++code) values[code] = decode_as<Type>(code);
  return values;
}();

/// visit(F32{}) and so on; f64, which needs no conversion, is the caller's own case.
template <typename Visit>
auto visit_narrow(Dtype type, Visit visit) {
  switch (type) {
    case Dtype::f16:
      return visit(F16{});
    case Dtype::bf16:
      return visit(Bf16{});
    case Dtype::f8e4m3:
      return visit(F8e4m3{});
    case Dtype::f8e5m2:
      return visit(F8e5m2{});
    default:
      return visit(F32{});
  }
}

/// Quiet NaN for every NaN, and no infinities where they saturate.
constexpr double canonical_f64(double value, Overflow overflow) {
  constexpr double kMax = std::numeric_limits<double>::max();
  if (value != value) return std::numeric_limits<double>::quiet_NaN();
  return overflow == Overflow::saturate ? std::clamp(value, -kMax, kMax) : value;
}

template <typename Word>
void put(Word word, std::byte* address) {
  std::memcpy(address, &word, sizeof word);
}

template <typename Type>
double get(const std::byte* address) {
  typename Type::Word word;
  std::memcpy(&word, address, sizeof word);
  if constexpr (sizeof word == 1) return kValues<Type>[word];
  return decode_as<Type>(word);
}

constexpr std::array<std::string_view, std::size(kDtypes)> kNames = {"f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2"};

constexpr std::array<DtypeFormat, std::size(kDtypes)> kFormats = {{
    {8, 53, 11, -1022, 0x1.fffffffffffffp1023, true},
    {4, 24, 8, -126, 0x1.fffffep127, true},
    {2, 11, 5, -14, 65504, true},
    {2, 8, 8, -126, 0x1.fep127, true},
    {1, 4, 4, -6, 448, false},
    {1, 3, 5, -14, 57344, true},
}};

}  // namespace

double DtypeFormat::unit_roundoff() const { return std::ldexp(1.0, -precision); }
double DtypeFormat::min_normal() const { return std::ldexp(1.0, min_exponent); }
double DtypeFormat::min_subnormal() const { return std::ldexp(1.0, min_exponent - precision + 1); }

const DtypeFormat& format_of(Dtype type) { return kFormats[static_cast<std::size_t>(type)]; }
std::string_view name_of(Dtype type) { return kNames[static_cast<std::size_t>(type)]; }

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (const Dtype type : kDtypes) {
    if (name_of(type) == name) return type;
  }
  return std::nullopt;
}

Overflow default_overflow(Dtype type) {
  return type == Dtype::f8e4m3 || type == Dtype::f8e5m2 ? Overflow::saturate : Overflow::ieee;
}

double round_to(Dtype type, double value) { return round_to(type, value, default_overflow(type)); }
double round_to(Dtype type, double value, Overflow overflow) { return decode(type, encode(type, value, overflow)); }

std::uint64_t encode(Dtype type, double value) { return encode(type, value, default_overflow(type)); }

std::uint64_t encode(Dtype type, double value, Overflow overflow) {
  if (type == Dtype::f64) return std::bit_cast<std::uint64_t>(canonical_f64(value, overflow));
  return visit_narrow(
      type, [&]<typename Type>(Type) -> std::uint64_t { return encode_as<Type>(value, limit_of<Type>(overflow)); });
}

double decode(Dtype type, std::uint64_t bits) {
  if (type == Dtype::f64) return std::bit_cast<double>(bits);
  return visit_narrow(type, [&]<typename Type>(Type) { return decode_as<Type>(bits); });
}

void store(Dtype type, double value, std::byte* address) { store_all(type, {&value, 1}, address); }

double load(Dtype type, const std::byte* address) {
  double value = 0;
  load_all(type, address, {&value, 1});
  return value;
}

void store_all(Dtype type, std::span<const double> values, std::byte* address) {
  if (type == Dtype::f64) {
    for (std::size_t n = 0; n < values.size(); ++n) put(canonical_f64(values[n], Overflow::ieee), address + n * 8);
    return;
  }
  const Overflow overflow = default_overflow(type);
  visit_narrow(type, [&]<typename Type>(Type) {
    const std::uint64_t limit = limit_of<Type>(overflow);
    constexpr std::size_t kBytes = sizeof(typename Type::Word);
    for (std::size_t n = 0; n < values.size(); ++n) put(encode_as<Type>(values[n], limit), address + n * kBytes);
  });
}

void load_all(Dtype type, const std::byte* address, std::span<double> values) {
  if (type == Dtype::f64) {
    if (!values.empty()) std::memcpy(values.data(), address, values.size_bytes());
    return;
  }
  visit_narrow(type, [&]<typename Type>(Type) {
    constexpr std::size_t kBytes = sizeof(typename Type::Word);
    for (std::size_t n = 0; n < values.size(); ++n) values[n] = get<Type>(address + n * kBytes);
  });
}

void round_all(Dtype type, std::span<double> values, Overflow overflow) {
  if (type == Dtype::f64) {
    for (double& value : values) value = canonical_f64(value, overflow);
    return;
  }
  visit_narrow(type, [&]<typename Type>(Type) {
    const std::uint64_t limit = limit_of<Type>(overflow);
    for (double& value : values) value = decode_as<Type>(encode_as<Type>(value, limit));
  });
}

}  // namespace attest

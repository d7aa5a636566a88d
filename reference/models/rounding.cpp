// SPDX-License-Identifier: Apache-2.0
#include "reference/models/rounding.h"

#include <bit>

namespace attest {
namespace {

/// To a format with `kDropped` fewer significand bits than float: normal numbers by adding half a unit to the bit
/// pattern (ties to even), subnormal ones by adding and subtracting a number whose unit is the format's smallest.
template <int kDropped>
void round_floats(const DtypeFormat& format, float* x, std::int64_t count) {
  const auto bits_of = [](double value) { return std::bit_cast<std::uint32_t>(static_cast<float>(value)); };
  const std::uint32_t min_normal = bits_of(format.min_normal());
  const std::uint32_t max = bits_of(format.max);
  const bool saturates = format.bytes == 1;
  constexpr std::uint32_t kInfinity = 0x7F800000u;
  const std::uint32_t beyond_max = saturates ? max : kInfinity;
  const float magic = static_cast<float>(format.min_subnormal() * 0x1.8p23);
  for (std::int64_t c = 0; c < count; ++c) {
    const auto bits = std::bit_cast<std::uint32_t>(x[c]);
    const std::uint32_t sign = bits & 0x80000000u;
    const std::uint32_t size = bits ^ sign;
    const std::uint32_t normal =
        (size + ((1u << (kDropped - 1)) - 1) + ((size >> kDropped) & 1u)) & ~((1u << kDropped) - 1);
    const auto subnormal = std::bit_cast<std::uint32_t>((std::bit_cast<float>(size) + magic) - magic);
    std::uint32_t rounded = size < min_normal ? subnormal : normal;
    rounded = rounded > max ? beyond_max : rounded;
    rounded = size > kInfinity ? size : rounded;  // NaN stays
    x[c] = std::bit_cast<float>(rounded | sign);
  }
}

}  // namespace

void round_all(Dtype type, float* x, std::int64_t count) {
  const DtypeFormat& format = format_of(type);
  switch (type) {
    case Dtype::f64:
    case Dtype::f32:
      return;
    case Dtype::f16:
      return round_floats<13>(format, x, count);
    case Dtype::bf16:
      return round_floats<16>(format, x, count);
    case Dtype::f8e4m3:
      return round_floats<20>(format, x, count);
    case Dtype::f8e5m2:
      return round_floats<21>(format, x, count);
  }
}

void round_all(Dtype type, double* x, std::int64_t count) {
  if (type == Dtype::f64) return;
  for (std::int64_t c = 0; c < count; ++c) x[c] = round_to(type, x[c]);
}

}  // namespace attest

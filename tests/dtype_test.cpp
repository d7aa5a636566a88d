// SPDX-License-Identifier: Apache-2.0
// Storage types: every code of the 8- and 16-bit types, every midpoint between neighbours and both its sides,
// overflow, subnormals, zeros and NaN; f32 against the compiler's own conversion.
#include "reference/problem/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace attest {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr Dtype kSmallTypes[] = {Dtype::f16, Dtype::bf16, Dtype::f8e4m3, Dtype::f8e5m2};

bool same_double(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

/// Value of a code by the definition of the format, with ldexp: independent of the bit tricks under test.
double value_by_definition(Dtype type, std::uint64_t code) {
  const DtypeFormat& format = format_of(type);
  const int fraction_bits = format.precision - 1;
  const int exponent = static_cast<int>(code >> fraction_bits) & ((1 << format.exponent_bits) - 1);
  const int fraction = static_cast<int>(code & ((1u << fraction_bits) - 1));
  const double sign = code >> (8 * format.bytes - 1) ? -1.0 : 1.0;
  const int top = (1 << format.exponent_bits) - 1;
  if (format.has_infinity && exponent == top) return fraction == 0 ? sign * kInf : kNan;
  if (!format.has_infinity && exponent == top && fraction == (1 << fraction_bits) - 1) return kNan;
  if (exponent == 0) return sign * std::ldexp(fraction, format.min_exponent - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, format.min_exponent + exponent - 1 - fraction_bits);
}

std::uint64_t codes_of(Dtype type) { return std::uint64_t{1} << (8 * format_of(type).bytes); }
std::uint64_t sign_of(Dtype type) { return codes_of(type) / 2; }

class SmallType : public ::testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(Dtype, SmallType, ::testing::ValuesIn(kSmallTypes),
                         [](const auto& test) { return std::string(name_of(test.param)); });

TEST_P(SmallType, DecodesEveryCodeByDefinition) {
  for (std::uint64_t code = 0; code < codes_of(GetParam()); ++code) {
    ASSERT_TRUE(same_double(decode(GetParam(), code), value_by_definition(GetParam(), code))) << std::hex << code;
  }
}

TEST_P(SmallType, EncodesEveryValueBackToItsCode) {
  for (std::uint64_t code = 0; code < codes_of(GetParam()); ++code) {
    const double value = decode(GetParam(), code);
    const std::uint64_t back = encode(GetParam(), value, Overflow::ieee);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(decode(GetParam(), back)));
      ASSERT_EQ(back, encode(GetParam(), kNan)) << "every NaN gives the same quiet NaN";
    } else {
      ASSERT_EQ(back, code);
      ASSERT_TRUE(same_double(round_to(GetParam(), value, Overflow::ieee), value));
    }
  }
}

/// Between each pair of neighbours, of both signs: the midpoint goes to the even code, and the doubles next to it
/// and next to the neighbours go to the nearer one.
TEST_P(SmallType, RoundsEveryMidpointToEvenAndItsSidesToTheNearer) {
  const Dtype type = GetParam();
  for (std::uint64_t low = 0; value_by_definition(type, low) < format_of(type).max; ++low) {
    const double below = value_by_definition(type, low);
    const double above = value_by_definition(type, low + 1);
    const double middle = below + (above - below) / 2;
    const std::uint64_t even = low % 2 == 0 ? low : low + 1;
    for (const std::uint64_t sign : {std::uint64_t{0}, sign_of(type)}) {
      const double s = sign ? -1 : 1;
      ASSERT_EQ(encode(type, s * middle), even | sign) << "midpoint after code " << low;
      ASSERT_EQ(encode(type, s * std::nextafter(middle, 0)), low | sign) << low;
      ASSERT_EQ(encode(type, s * std::nextafter(middle, kInf)), (low + 1) | sign) << low;
      ASSERT_EQ(encode(type, s * std::nextafter(below, kInf)), low | sign) << low;
      ASSERT_EQ(encode(type, s * std::nextafter(above, 0)), (low + 1) | sign) << low;
    }
  }
}

/// The values where overflow begins: half a step above the largest finite value, by hand for each type.
TEST(Dtype, OverflowsAtHalfAStepAboveTheLargestValue) {
  struct Threshold {
    Dtype type;
    double max, first_over;
    bool tie_overflows;
    std::uint64_t over_code, max_code;
  };
  const Threshold thresholds[] = {
      {Dtype::f16, 65504, 65520, true, 0x7C00, 0x7BFF},
      {Dtype::bf16, 0x1.fep127, 0x1.ffp127, true, 0x7F80, 0x7F7F},
      {Dtype::f8e4m3, 448, 464, false, 0x7F, 0x7E},  // 448 has the even significand, so the tie stays
      {Dtype::f8e5m2, 57344, 61440, true, 0x7C, 0x7B},
      {Dtype::f32, 0x1.fffffep127, 0x1.ffffffp127, true, 0x7F800000, 0x7F7FFFFF},
  };
  for (const Threshold& t : thresholds) {
    SCOPED_TRACE(name_of(t.type));
    EXPECT_EQ(encode(t.type, t.max, Overflow::ieee), t.max_code);
    EXPECT_EQ(encode(t.type, std::nextafter(t.first_over, 0), Overflow::ieee), t.max_code);
    EXPECT_EQ(encode(t.type, t.first_over, Overflow::ieee), t.tie_overflows ? t.over_code : t.max_code);
    EXPECT_EQ(encode(t.type, std::nextafter(t.first_over, kInf), Overflow::ieee), t.over_code);
    for (const double huge : {2 * t.first_over, 1e300, std::numeric_limits<double>::max(), kInf}) {
      EXPECT_EQ(encode(t.type, huge, Overflow::ieee), t.over_code) << huge;
      EXPECT_EQ(encode(t.type, huge, Overflow::saturate), t.max_code) << huge;
      EXPECT_EQ(round_to(t.type, -huge, Overflow::saturate), -t.max) << huge;
    }
    EXPECT_EQ(round_to(t.type, -t.max, Overflow::ieee), -t.max);
    EXPECT_TRUE(std::isnan(round_to(t.type, kNan, Overflow::saturate)));
  }
  EXPECT_TRUE(std::isnan(round_to(Dtype::f8e4m3, -kInf, Overflow::ieee)));
  EXPECT_EQ(round_to(Dtype::f8e5m2, -kInf, Overflow::ieee), -kInf);
  EXPECT_EQ(round_to(Dtype::f64, kInf), kInf);
  EXPECT_EQ(round_to(Dtype::f64, -kInf, Overflow::saturate), -std::numeric_limits<double>::max());
}

TEST(Dtype, OnlyTheEightBitTypesSaturateByDefault) {
  EXPECT_EQ(round_to(Dtype::f8e4m3, 1e6), 448);
  EXPECT_EQ(round_to(Dtype::f8e5m2, -1e6), -57344);
  EXPECT_EQ(round_to(Dtype::f16, 1e6), kInf);
  EXPECT_EQ(round_to(Dtype::bf16, -1e300), -kInf);
  EXPECT_EQ(round_to(Dtype::f32, 1e300), kInf);
}

TEST(Dtype, KeepsSubnormalsAndTheSignOfZero) {
  for (const Dtype type : kDtypes) {
    SCOPED_TRACE(name_of(type));
    const DtypeFormat& format = format_of(type);
    const double least = format.min_subnormal();
    EXPECT_EQ(encode(type, least), 1u);
    EXPECT_EQ(round_to(type, -least), -least);
    EXPECT_EQ(round_to(type, format.min_normal()), format.min_normal());
    EXPECT_EQ(round_to(type, format.min_normal() - least), format.min_normal() - least);
    EXPECT_TRUE(same_double(round_to(type, 0.0), 0.0));
    EXPECT_TRUE(same_double(round_to(type, -0.0), -0.0));
    if (type == Dtype::f64) continue;
    EXPECT_TRUE(same_double(round_to(type, least / 2), 0.0)) << "a tie with zero goes to zero, which is even";
    EXPECT_TRUE(same_double(round_to(type, -least / 2), -0.0));
    EXPECT_EQ(round_to(type, std::nextafter(least / 2, 1)), least);
    EXPECT_EQ(round_to(type, 1.5 * least), 2 * least);
    EXPECT_TRUE(same_double(round_to(type, -std::numeric_limits<double>::denorm_min()), -0.0));
  }
}

/// A value just above a midpoint of f16 that float32 cannot tell from it: two roundings would go down to even.
TEST(Dtype, RoundsOnceAndNotThroughFloat) {
  const double above_tie = 1 + 0x1p-11 + 0x1p-40;
  EXPECT_EQ(round_to(Dtype::f16, above_tie), 1 + 0x1p-10);
  EXPECT_EQ(round_to(Dtype::f16, static_cast<double>(static_cast<float>(above_tie))), 1);
  EXPECT_EQ(round_to(Dtype::bf16, 1 + 0x1p-8 + 0x1p-50), 1 + 0x1p-7);
  EXPECT_EQ(round_to(Dtype::bf16, 0.1), 0.10009765625);
}

TEST(Dtype, FloatAgreesWithTheCompilersConversion) {
  std::mt19937_64 generator(20240611);
  const auto check = [](double value) {
    const float want = static_cast<float>(value);
    ASSERT_EQ(encode(Dtype::f32, value), std::bit_cast<std::uint32_t>(want)) << std::hexfloat << value;
    ASSERT_EQ(decode(Dtype::f32, std::bit_cast<std::uint32_t>(want)), static_cast<double>(want));
  };
  for (int n = 0; n < 2'000'000; ++n) {
    const auto code = static_cast<std::uint32_t>(generator());
    const float low = std::bit_cast<float>(code);
    if (!std::isfinite(low)) continue;
    const float high = std::bit_cast<float>(code + 1);
    check(low);
    if (std::isfinite(high)) {
      const double middle = (static_cast<double>(low) + static_cast<double>(high)) / 2;
      for (const double value : {middle, std::nextafter(middle, -kInf), std::nextafter(middle, kInf)}) check(value);
    }
    const std::uint64_t word = generator();  // any double in and around float's range
    const std::uint64_t exponent = 1023 - 160 + word % 300;
    check(std::bit_cast<double>((word & 0x800FFFFFFFFFFFFF) | exponent << 52));
  }
  for (const double value : {0.0, -0.0, kInf, -kInf}) check(value);
}

TEST(Dtype, BulkConversionsEqualSingleOnesAtAnyAlignment) {
  std::mt19937_64 generator(7);
  std::vector<double> values = {0.0, -0.0, kInf, -kInf, kNan, 1e-320, 65520, 464};
  while (values.size() < 5003)
    values.push_back(std::ldexp(static_cast<double>(generator()) - 0x1p63, -63 - int(generator() % 160)));
  for (const Dtype type : kDtypes) {
    SCOPED_TRACE(name_of(type));
    const auto bytes = static_cast<std::size_t>(format_of(type).bytes);
    for (const std::size_t shift : {0u, 1u}) {
      std::vector<std::byte> storage(values.size() * bytes + 2, std::byte{0xA5});
      store_all(type, values, storage.data() + shift);
      EXPECT_EQ(storage[storage.size() - 2 + shift], std::byte{0xA5}) << "wrote past the end";
      std::vector<double> loaded(values.size());
      load_all(type, storage.data() + shift, loaded);
      for (std::size_t n = 0; n < values.size(); ++n) {
        ASSERT_TRUE(same_double(loaded[n], round_to(type, values[n]))) << values[n];
        std::byte one[8];
        store(type, values[n], one);
        ASSERT_EQ(std::memcmp(one, storage.data() + shift + n * bytes, bytes), 0);
        ASSERT_TRUE(same_double(load(type, one), loaded[n]));
      }
    }
    for (const Overflow overflow : {Overflow::ieee, Overflow::saturate}) {
      std::vector<double> rounded = values;
      round_all(type, rounded, overflow);
      for (std::size_t n = 0; n < values.size(); ++n) {
        ASSERT_TRUE(same_double(rounded[n], round_to(type, values[n], overflow))) << values[n];
      }
    }
    store_all(type, {}, nullptr);
    load_all(type, nullptr, {});
  }
}

TEST(Dtype, FormatsStateTheirRange) {
  for (const Dtype type : kDtypes) {
    SCOPED_TRACE(name_of(type));
    const DtypeFormat& format = format_of(type);
    EXPECT_EQ(round_to(type, format.max), format.max);
    EXPECT_EQ(round_to(type, 1 + 2 * format.unit_roundoff()), 1 + 2 * format.unit_roundoff());
    EXPECT_EQ(round_to(type, 1 + format.unit_roundoff()), 1);
    EXPECT_EQ(format.min_exponent, 2 - (1 << (format.exponent_bits - 1)));
    EXPECT_EQ(format.exponent_bits + format.precision, 8 * format.bytes);
    EXPECT_EQ(std::isinf(round_to(type, kInf, Overflow::ieee)), format.has_infinity);
    EXPECT_EQ(dtype_from_name(name_of(type)), type);
  }
  EXPECT_EQ(dtype_from_name("float32"), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
}

}  // namespace
}  // namespace attest

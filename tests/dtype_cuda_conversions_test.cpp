// SPDX-License-Identifier: Apache-2.0
// Our conversions against the host conversions of the CUDA toolkit, bit for bit: every code, every midpoint and the
// neighbouring floats and doubles. Runs on the host alone; built only where the toolkit's headers are found.
//
// NaN is compared as a class: the toolkit's NaN codes (f16 and bf16 0x7FFF, f8e5m2 0x7F) differ from ours.
#include "reference/problem/dtype.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace attest {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// One conversion of the toolkit, from double or (where only that exists) from float.
struct Conversion {
  const char* name;
  Dtype type;
  Overflow overflow;
  bool from_float;
  std::function<std::uint64_t(double)> code;
};

template <typename Stored>
std::uint64_t code_of(Stored stored) {
  std::uint64_t code = 0;
  std::memcpy(&code, &stored, sizeof stored);
  return code;
}

Conversion eight_bits(const char* name, Dtype type, __nv_saturation_t saturation, bool from_float) {
  const auto kind = type == Dtype::f8e4m3 ? __NV_E4M3 : __NV_E5M2;
  const auto overflow = saturation == __NV_SATFINITE ? Overflow::saturate : Overflow::ieee;
  return {name, type, overflow, from_float, [=](double value) -> std::uint64_t {
            return from_float ? __nv_cvt_float_to_fp8(static_cast<float>(value), saturation, kind)
                              : __nv_cvt_double_to_fp8(value, saturation, kind);
          }};
}

std::vector<Conversion> conversions() {
  return {
      {"double2half", Dtype::f16, Overflow::ieee, false, [](double x) { return code_of(__double2half(x)); }},
      {"float2half_rn", Dtype::f16, Overflow::ieee, true,
       [](double x) { return code_of(__float2half_rn(static_cast<float>(x))); }},
      {"double2bfloat16", Dtype::bf16, Overflow::ieee, false, [](double x) { return code_of(__double2bfloat16(x)); }},
      {"float2bfloat16_rn", Dtype::bf16, Overflow::ieee, true,
       [](double x) { return code_of(__float2bfloat16_rn(static_cast<float>(x))); }},
      eight_bits("double_to_fp8 e4m3 satfinite", Dtype::f8e4m3, __NV_SATFINITE, false),
      eight_bits("double_to_fp8 e4m3 nosat", Dtype::f8e4m3, __NV_NOSAT, false),
      eight_bits("double_to_fp8 e5m2 satfinite", Dtype::f8e5m2, __NV_SATFINITE, false),
      eight_bits("double_to_fp8 e5m2 nosat", Dtype::f8e5m2, __NV_NOSAT, false),
      eight_bits("float_to_fp8 e4m3 satfinite", Dtype::f8e4m3, __NV_SATFINITE, true),
      eight_bits("float_to_fp8 e5m2 nosat", Dtype::f8e5m2, __NV_NOSAT, true),
  };
}

/// Every value of the type, every midpoint, their neighbours in double and in float, the values around overflow
/// and zero, and random doubles of every exponent near the type's range; both signs.
std::vector<double> probes(Dtype type) {
  std::vector<double> values = {0, kInf, 1e300, std::numeric_limits<double>::max(), 5e-324};
  const auto add_neighbourhood = [&](double value) {
    for (const double x : {value, std::nextafter(value, 0), std::nextafter(value, kInf)}) values.push_back(x);
    const auto narrow = static_cast<float>(value);
    values.push_back(std::nextafter(narrow, 0.0f));
    values.push_back(std::nextafter(narrow, std::numeric_limits<float>::infinity()));
  };
  const std::uint64_t codes = std::uint64_t{1} << (8 * format_of(type).bytes - 1);
  for (std::uint64_t code = 0; code < codes; ++code) {
    const double low = decode(type, code);
    if (!std::isfinite(low)) break;
    double high = decode(type, code + 1);
    if (!std::isfinite(high)) high = low + (low - decode(type, code - 1));
    add_neighbourhood(low);
    add_neighbourhood(low + (high - low) / 2);
    add_neighbourhood(high);
  }
  std::mt19937_64 generator(11);
  for (int n = 0; n < 1'000'000; ++n) {
    const std::uint64_t word = generator();
    values.push_back(std::bit_cast<double>(word >> 12 | (1023 - 160 + word % 320) << 52));
  }
  const std::size_t positive = values.size();
  for (std::size_t n = 0; n < positive; ++n) values.push_back(-values[n]);
  return values;
}

TEST(CudaConversions, AgreeOnEveryProbe) {
  for (const Conversion& conversion : conversions()) {
    SCOPED_TRACE(conversion.name);
    std::size_t wrong = 0;
    double example = 0;
    for (double value : probes(conversion.type)) {
      if (conversion.from_float) value = static_cast<double>(static_cast<float>(value));
      const std::uint64_t want = conversion.code(value);
      const std::uint64_t got = encode(conversion.type, value, conversion.overflow);
      const bool both_nan = std::isnan(decode(conversion.type, want)) && std::isnan(decode(conversion.type, got));
      if (want != got && !both_nan && wrong++ == 0) example = value;
    }
    EXPECT_EQ(wrong, 0u) << std::hexfloat << "first at " << example << ": toolkit " << std::hex
                         << conversion.code(example) << ", ours "
                         << encode(conversion.type, example, conversion.overflow);
  }
}

TEST(CudaConversions, DecodeEveryCodeAlike) {
  const auto expect_same = [](Dtype type, std::uint64_t code, double want) {
    const double got = decode(type, code);
    ASSERT_TRUE((std::isnan(want) && std::isnan(got)) ||
                std::bit_cast<std::uint64_t>(want) == std::bit_cast<std::uint64_t>(got))
        << name_of(type) << ' ' << std::hex << code;
  };
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    expect_same(Dtype::f16, code, __half2float(std::bit_cast<__half>(static_cast<std::uint16_t>(code))));
    expect_same(Dtype::bf16, code, __bfloat162float(std::bit_cast<__nv_bfloat16>(static_cast<std::uint16_t>(code))));
  }
  for (std::uint32_t code = 0; code < 0x100; ++code) {
    const auto storage = static_cast<__nv_fp8_storage_t>(code);
    expect_same(Dtype::f8e4m3, code, __half2float(__half(__nv_cvt_fp8_to_halfraw(storage, __NV_E4M3))));
    expect_same(Dtype::f8e5m2, code, __half2float(__half(__nv_cvt_fp8_to_halfraw(storage, __NV_E5M2))));
  }
}

TEST(CudaConversions, NanStaysNan) {
  for (const Conversion& conversion : conversions()) {
    EXPECT_TRUE(std::isnan(decode(conversion.type, conversion.code(std::nan(""))))) << conversion.name;
  }
}

}  // namespace
}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// Named declarations. The constants of tensor cores and of the approximate instructions are those of docs/numerics.md.
#include <array>
#include <string>

#include "reference/oracle/numerics_profile.h"
#include "reference/problem/invalid_request.h"

namespace attest {
namespace {

constexpr attest_accumulation kSimt = {1, 0, 0x1p-24, 0, 0};
constexpr attest_accumulation kSimtDouble = {1, 0, 0x1p-53, 0, 0};
constexpr attest_accumulation kTensorCore = {4, 23, 0x1p-23, 1, 0};  // the most pessimistic generation
constexpr attest_accumulation kHopper = {16, 25, 0x1p-23, 1, 0};
constexpr attest_accumulation kHopperFp8 = {32, 13, 0x1p-13, 1, 0};

constexpr double kExp2Approx = 0x1p-22;
constexpr double kLogApprox = 0x1.84p-22;   // 2^-21.4
constexpr double kTanhApprox = 0x1.13p-11;  // 2^-10.9

constexpr attest_numerics declared(std::int32_t p_dtype, attest_accumulation sums, std::int32_t p_offset = 0) {
  return {sizeof(attest_numerics),
          p_dtype,
          0,
          p_offset,
          0,
          sums,
          sums,
          sums,
          kExp2Approx,
          kLogApprox,
          kTanhApprox,
          0,
          16,
          64,
          1,
          ATTEST_DELTA_FROM_O,
          ATTEST_F32, 0, 0};
}

constexpr attest_numerics emulated_double() {
  attest_numerics numerics = declared(ATTEST_F64, kSimtDouble);
  numerics.exp_error = numerics.log_error = numerics.tanh_error = 0x1p-51;
  return numerics;
}

constexpr std::array<NumericsPreset, 7> kPresets = {{
    {"f32-simt", "float32 FMA chains, P not rounded", declared(ATTEST_F32, kSimt)},
    {"f16-tensorcore", "float16 P on a tensor core of any generation", declared(ATTEST_F16, kTensorCore)},
    {"bf16-tensorcore", "bfloat16 P on a tensor core of any generation", declared(ATTEST_BF16, kTensorCore)},
    {"hopper-f16", "float16 P on Hopper's wgmma", declared(ATTEST_F16, kHopper)},
    {"hopper-bf16", "bfloat16 P on Hopper's wgmma", declared(ATTEST_BF16, kHopper)},
    {"hopper-fp8", "e4m3 P times 2^8 on Hopper's wgmma", declared(ATTEST_F8E4M3, kHopperFp8, 8)},
    {"emulated-f64", "float64 throughout", emulated_double()},
}};

}  // namespace

std::span<const NumericsPreset> numerics_presets() { return kPresets; }

const attest_numerics& numerics_preset(std::string_view name) {
  std::string names = "one of";
  for (const NumericsPreset& preset : kPresets) {
    if (preset.name == name) return preset.numerics;
    names.append(" ").append(preset.name);
  }
  throw InvalidRequest("numerics", std::string(name), names);
}

}  // namespace attest

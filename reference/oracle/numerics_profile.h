// SPDX-License-Identifier: Apache-2.0
// The arithmetic a kernel declares, in the form that the error bounds use: one roundoff per place where it rounds.
// docs/numerics.md derives what is made of it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "reference/problem/kernel_abi.h"
#include "reference/problem/problem.h"

namespace attest {

/// Rounding to a storage type: |rounded - x| <= max(u |x|, subnormal / 2) while |x| stays below max.
struct StorageRounding {
  double u;          // 2^-precision
  double subnormal;  // spacing near zero, or the float32 flush-to-zero limit if that is larger
  double min_normal;
  double max;
};

/// Accumulation of a sum of n products, a bound relative to different sizes of the sum (docs/numerics.md, "Sums").
struct Accumulation {
  int block = 1;       // exact products per step
  double aligner = 0;  // 2^-f, the truncation of one addend relative to the largest of its block; 0: none
  double u_norm = 0x1p-24;
  bool truncates = false;
  std::int64_t promote = 0;  // products after which the sum moves to the wide accumulator; 0: never
  double u_wide = 0x1p-24;   // roundoff of that accumulator and of rescaling

  /// Worst case, times the sum of |terms|; `extra` more roundings of the running sum.
  double det(std::int64_t n, std::int64_t extra = 0) const;
  /// Standard deviation, times the size of the partial sums.
  double rand(std::int64_t n, std::int64_t extra = 0) const;
  /// One-sided part of truncation, times the size of the partial sums.
  double bias(std::int64_t n) const;
  /// Error of a sum with partial sums of 2-norm `spread` around |result| = `mean`.
  double gen(std::int64_t n, double lambda, double spread, double mean, std::int64_t extra) const;
};

struct NumericsProfile {
  StorageRounding p = {};    // P before P V; u = 0: not rounded
  StorageRounding p_bwd = {};  // P and dS before the products of the backward
  StorageRounding out = {};  // o dq dk dv
  Accumulation qk, pv, bwd;
  double exp_error = 0x1p-22;
  double log_error = 0x1p-21;
  double tanh_error = 0x1p-22;
  double input_error = 0;
  double p_scale = 1;  // forward P is stored times this
  bool p_normalised = false;
  bool l_from_rounded = false;
  bool delta_from_stored_o = true;
  std::int64_t key_tile = 16;
  std::int64_t lanes = 1;
  double u = 0x1p-24;  // roundoff of the registers: float32, or float64 in float64 kernels
  bool wide = false;   // float64 kernel: no flush to zero

  std::int64_t key_tiles(std::int64_t keys) const { return (keys + key_tile - 1) / key_tile; }
  /// Additions on the longest path of a row sum over `keys`.
  std::int64_t row_sum_steps(std::int64_t keys) const { return (keys + lanes - 1) / lanes + lanes + key_tiles(keys); }
};

/// Throws InvalidRequest("numerics", ...) for a declaration that no bound is derived for.
NumericsProfile make_profile(const attest_numerics& numerics, const Problem& problem);

/// Declarations of usual hardware, to start from: f32-simt f16-tensorcore bf16-tensorcore hopper-f16 hopper-bf16
/// hopper-fp8 emulated-f64.
struct NumericsPreset {
  std::string_view name;
  std::string_view description;
  attest_numerics numerics;
};
std::span<const NumericsPreset> numerics_presets();
/// Throws InvalidRequest("numerics", ...) for an unknown name.
const attest_numerics& numerics_preset(std::string_view name);

}  // namespace attest

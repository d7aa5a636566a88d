// SPDX-License-Identifier: Apache-2.0
#include "reference/oracle/numerics_profile.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "reference/problem/invalid_request.h"

namespace attest {
namespace {

constexpr double kFlushed = 0x1p-125;       // results of float32 instructions below 2^-126 may become 0
constexpr double kDoubleFlushed = 0x1p-1056;  // float64: sums of up to 2^18 terms that are each off by 2^-1075

void require(bool condition, const char* field, double got, const char* allowed) {
  if (!condition) throw InvalidRequest("numerics", std::string(field) + " = " + std::to_string(got), allowed);
}

StorageRounding rounding_of(Dtype type, bool wide) {
  const DtypeFormat& format = format_of(type);
  return {format.unit_roundoff(), std::max(format.min_subnormal(), wide ? kDoubleFlushed : kFlushed),
          format.min_normal(), format.max};
}

// TF32 is a type of registers only: float32's range with 11 bits.
StorageRounding rounding_of_p(std::int32_t type, bool wide) {
  if (type == ATTEST_TF32) return {0x1p-11, kFlushed, 0x1p-126, format_of(Dtype::f32).max};
  require(type >= 0 && type < ATTEST_TF32, "p_dtype", type, "one of attest_dtype");
  require(type != ATTEST_F64 || wide, "p_dtype", type, "float64 only in float64 kernels");
  StorageRounding rounding = rounding_of(static_cast<Dtype>(type), wide);
  if (type == ATTEST_F64) rounding.u = rounding.subnormal = 0;
  return rounding;
}

Accumulation accumulation(const attest_accumulation& declared, const char* field, double u) {
  require(declared.block >= 1, field, declared.block, "block at least 1");
  require(declared.aligner_bits >= 0, field, declared.aligner_bits, "aligner_bits at least 0");
  require(declared.u_norm > 0 && declared.u_norm < 0.5, field, declared.u_norm, "u_norm between 0 and 1/2");
  require(declared.promote >= 0, field, declared.promote, "promote at least 0");
  const double aligner = declared.aligner_bits == 0 ? 0 : std::exp2(-declared.aligner_bits);
  return {declared.block, aligner, declared.u_norm, declared.truncates != 0, declared.promote, u};
}

void require_error(double error, const char* field) {
  require(error >= 0 && error < 0.125, field, error, "an error between 0 and 1/8");
}

}  // namespace

double Accumulation::det(std::int64_t n, std::int64_t extra) const {
  const std::int64_t run = promote > 0 ? std::min(n, promote) : n;
  const std::int64_t moves = promote > 0 ? (n + promote - 1) / promote : 0;
  const double steps = static_cast<double>((run + block - 1) / block);
  return steps * ((block + 1) * aligner + u_norm) + static_cast<double>(extra + moves) * u_wide;
}

double Accumulation::rand(std::int64_t n, std::int64_t extra) const {
  const std::int64_t run = promote > 0 ? std::min(n, promote) : n;
  const std::int64_t moves = promote > 0 ? (n + promote - 1) / promote : 0;
  const double steps = static_cast<double>((run + block - 1) / block);
  return std::sqrt(steps * ((block + 1) * aligner * aligner + u_norm * u_norm) +
                   static_cast<double>(extra + moves) * u_wide * u_wide);
}

double Accumulation::bias(std::int64_t n) const {
  if (!truncates) return 0;
  const std::int64_t run = promote > 0 ? std::min(n, promote) : n;
  // The parts between moves are biased the same way; together they are sqrt(parts) larger than one of them is
  // relative to the 2-norm of the whole.
  const double parts = promote > 0 ? std::ceil(static_cast<double>(n) / static_cast<double>(promote)) : 1;
  return static_cast<double>((run + block - 1) / block) * (aligner + u_norm) * std::sqrt(parts);
}

double Accumulation::gen(std::int64_t n, double lambda, double spread, double mean, std::int64_t extra) const {
  return lambda * rand(n, extra) * (spread + mean) + bias(n) * spread + (truncates ? det(n) * mean : 0);
}

NumericsProfile make_profile(const attest_numerics& numerics, const Problem& problem) {
  NumericsProfile profile;
  profile.wide = problem.dtype == Dtype::f64;
  profile.u = profile.wide ? 0x1p-53 : 0x1p-24;
  profile.p = rounding_of_p(numerics.p_dtype, profile.wide);
  profile.p_bwd = numerics.has_p_dtype_backward != 0 ? rounding_of_p(numerics.p_dtype_backward, profile.wide) : profile.p;
  profile.out = rounding_of(problem.output_dtype(), profile.wide);
  profile.qk = accumulation(numerics.qk, "qk", profile.u);
  profile.pv = accumulation(numerics.pv, "pv", profile.u);
  profile.bwd = accumulation(numerics.bwd, "bwd", profile.u);
  require_error(numerics.exp_error, "exp_error");
  require_error(numerics.log_error, "log_error");
  require_error(numerics.tanh_error, "tanh_error");
  require_error(numerics.input_error, "input_error");
  profile.exp_error = numerics.exp_error;
  profile.log_error = numerics.log_error;
  profile.tanh_error = numerics.tanh_error;
  profile.input_error = numerics.input_error;
  require(std::abs(numerics.p_offset) <= 64, "p_offset", numerics.p_offset, "between -64 and 64");
  profile.p_scale = std::exp2(numerics.p_offset);
  profile.p_normalised = numerics.p_normalised != 0;
  profile.l_from_rounded = numerics.l_from_rounded != 0;
  profile.delta_from_stored_o = numerics.delta_source == ATTEST_DELTA_FROM_O;
  require(numerics.delta_source == ATTEST_DELTA_FROM_O || numerics.delta_source == ATTEST_DELTA_FROM_F32_O,
          "delta_source", numerics.delta_source, "one of attest_delta_source");
  require(numerics.key_tile >= 1, "key_tile", static_cast<double>(numerics.key_tile), "at least 1");
  require(numerics.lanes >= 1, "lanes", numerics.lanes, "at least 1");
  profile.key_tile = numerics.key_tile;
  profile.lanes = numerics.lanes;
  // Partial sums of dk and dv in a narrow type would be rounded once for each head of a group and each split.
  require(numerics.reduce_dtype == ATTEST_F32 || numerics.reduce_dtype == ATTEST_F64, "reduce_dtype",
          numerics.reduce_dtype, "float32 or float64: no bound is derived for narrower partial sums");
  return profile;
}

}  // namespace attest

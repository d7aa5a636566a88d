// SPDX-License-Identifier: Apache-2.0
#include "golden/profile.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "reference/problem/invalid_request.h"

namespace attest::golden {
namespace {

constexpr std::array<Profile, 4> kProfiles = {{
    {"f32", "f32-simt", "float32 throughout: chains of FMA, exp2 to 2^-22, P not rounded"},
    {"f16", "f16-tensorcore", "float32 sums on matrix units that may truncate; P and dS rounded to f16"},
    {"bf16", "bf16-tensorcore", "float32 sums on matrix units that may truncate; P and dS rounded to bf16"},
    {"f8", "hopper-fp8", "13-bit sums on matrix units; P times 2^8 rounded to e4m3"},
}};

void store_bounds(const std::vector<double>& exact, std::vector<double>& bounds) {
  for (std::size_t n = 0; n < bounds.size(); ++n) bounds[n] = stored_bound(exact[n], bounds[n]);
}

}  // namespace

const Profile& profile_of(const Problem& problem) {
  switch (problem.dtype) {
    case Dtype::f32:
      return kProfiles[0];
    case Dtype::f16:
      return kProfiles[1];
    case Dtype::bf16:
      return kProfiles[2];
    case Dtype::f8e4m3:
    case Dtype::f8e5m2:
      return kProfiles[3];
    case Dtype::f64:
      break;
  }
  throw InvalidRequest("dtype", std::string(name_of(problem.dtype)), "f32, f16, bf16, f8e4m3 or f8e5m2 in a pack");
}

double stored_bound(double want, double bound) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  if (std::isnan(bound) || bound < 0) throw std::logic_error("a bound that is NaN or negative");
  if (bound == 0 || std::isinf(bound)) return bound;
  if (std::isfinite(want)) bound += std::abs(want) * 0x1p-53;
  // Steps of 2^-8 of the power of two above the bound; at the bottom, of float32's smallest number, 2^-149.
  const int exponent = std::max(std::ilogb(bound) + 1, -149 + 8);
  const double step = std::ldexp(1.0, exponent - 8);
  const double stored = std::ceil(bound / step) * step;
  return stored > kLargest ? std::numeric_limits<double>::infinity() : stored;
}

Bounds profile_bounds(const Problem& problem, const Inputs& inputs, const Exact& exact) {
  const NumericsProfile numerics = make_profile(numerics_preset(profile_of(problem).preset), problem);
  const BoundMode mode = family(problem.fill.family).kind == FamilyKind::random ? BoundMode::gen : BoundMode::det;
  Bounds bounds = error_bounds(problem, inputs, exact, numerics, mode, BoundArithmetic::in_double);
  store_bounds(exact.o.data, bounds.o.data);
  store_bounds(exact.lse, bounds.lse);
  store_bounds(exact.dq.data, bounds.dq.data);
  store_bounds(exact.dk.data, bounds.dk.data);
  store_bounds(exact.dv.data, bounds.dv.data);
  store_bounds(exact.d_bias.data, bounds.d_bias.data);
  return bounds;
}

}  // namespace attest::golden

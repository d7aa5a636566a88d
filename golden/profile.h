// SPDX-License-Identifier: Apache-2.0
// The arithmetic that a pack's bounds allow: one named profile for each storage type (docs/golden-format.md).
#pragma once

#include <string_view>

#include "reference/oracle/bound.h"
#include "reference/problem/problem.h"

namespace attest::golden {

struct Profile {
  std::string_view name;         // "f32" "f16" "bf16" "f8"
  std::string_view preset;       // of numerics_presets()
  std::string_view description;  // one line
};

/// Throws InvalidRequest("dtype", ...) for f64, whose kernels are as exact as a pack is.
const Profile& profile_of(const Problem& problem);

/// The bounds of a problem in its profile, each rounded up by stored_bound(). Worst case (det) unless the inputs are
/// random.
Bounds profile_bounds(const Problem& problem, const Inputs& inputs, const Exact& exact);

/// The smallest float32 of 8 significant bits that is at least `bound` plus the rounding of `want` to f64. So coarse
/// a value hides the last bits of the arithmetic in which a bound was computed, which are no part of the format.
/// Infinity stays infinity; 0 stays 0.
double stored_bound(double want, double bound);

}  // namespace attest::golden

// SPDX-License-Identifier: Apache-2.0
// Whether a computation in double agrees with the slow oracle: classes (NaN, +inf, -inf, finite) are equal, zeros
// that nothing contributes to are zero, and the rest differs by at most 1e-13 of what was summed.
#pragma once

#include <string>

#include "reference/oracle/exact.h"
#include "tests/support/slow_oracle.h"

namespace attest {

/// Relative to the magnitude of an element, for scores made of terms that sum to at most 16. A double sum of D terms
/// of total size A is off by up to (D + 3) 2^-53 A, and P by twice that relative to itself: 1e-13 at D = 24, A = 16.
/// Larger scores lose in proportion.
inline constexpr double kAgreement = 1e-13;

/// Empty where `got` agrees with `want` everywhere; else the first element that does not, in words.
std::string first_disagreement(const Exact& got, const slow::Result& want);

}  // namespace attest

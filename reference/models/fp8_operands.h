// SPDX-License-Identifier: Apache-2.0
// What FA3 does to wide operands before its FP8 products (Shah et al. 2024, section 3.3): block quantisation and
// incoherent processing.
#pragma once

#include <cstdint>

namespace attest {

/// Every run of `block` rows to e4m3 and back, with one scale that takes its largest element to the largest e4m3.
template <typename Real>
void quantise(Real* x, std::int64_t rows, std::int64_t width, std::int64_t block);  // [rows, width]

/// Rows times one orthogonal matrix, random signs and then a Hadamard transform, that spreads outliers over the width
/// and leaves products of two rows so treated unchanged. Throws InvalidRequest unless width is a power of two.
template <typename Real>
void mix_columns(Real* x, std::int64_t rows, std::int64_t width);  // [rows, width]

}  // namespace attest

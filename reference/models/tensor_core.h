// SPDX-License-Identifier: Apache-2.0
// A product of tiles that adds as tensor cores do (kernel_abi.h, attest_accumulation; Fasi et al. 2021): blocks of
// exact products and the accumulator are aligned to their largest exponent, cut to `aligner_bits` fraction bits toward
// zero, added exactly, and rounded once to float32.
#pragma once

#include "reference/models/matmul.h"
#include "reference/problem/kernel_abi.h"

namespace attest {

/// C += A B with A [rows, depth], B [depth, cols], C [rows, cols]; a term (i, k) where seen(i, k) (transposed: seen(k, i))
/// is -inf is left out when `seen` is given.
void multiply_add_blocks(const attest_accumulation& how, std::int64_t rows, std::int64_t cols, std::int64_t depth,
                         Matrix<const float> a, Matrix<const float> b, Matrix<float> c, const Matrix<const float>* seen,
                         bool transposed);

}  // namespace attest

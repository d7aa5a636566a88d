// SPDX-License-Identifier: Apache-2.0
// The choices of a tiled model that its paper leaves open: tile sizes and the types of its intermediates.
#pragma once

#include <cstdint>

#include "reference/problem/dtype.h"
#include "reference/problem/kernel_abi.h"

namespace attest {

struct ModelOptions {
  std::int64_t query_tile = 64;  // Br
  std::int64_t key_tile = 64;    // Bc
  Dtype p_forward = Dtype::f32;  // P is rounded to it before P V, times 2^p_offset
  int p_offset = 0;
  Dtype p_backward = Dtype::f32;  // P and dS are rounded to it before their products
};

/// P in the input type, as kernels of the field do; f8 problems keep P in e4m3 times 2^8 forward, and P and dS in
/// bf16 backward, where e4m3 would saturate.
inline ModelOptions default_options(const attest_problem& problem) {
  ModelOptions options;
  const auto type = static_cast<Dtype>(problem.dtype);
  const bool narrow = type == Dtype::f8e4m3 || type == Dtype::f8e5m2;
  options.p_forward = narrow ? Dtype::f8e4m3 : type;
  options.p_offset = narrow ? 8 : 0;
  options.p_backward = narrow ? Dtype::bf16 : type;
  return options;
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// The choices that the papers leave open: tile sizes, the types of intermediates, how products accumulate, and the
// parameters of single models. default_options() is what the built-in kernels run with.
#pragma once

#include <cstdint>
#include <optional>

#include "reference/problem/dtype.h"
#include "reference/problem/kernel_abi.h"

namespace attest {

class Ledger;

/// How the un-normalised output follows a rising maximum.
enum class Rescale : std::uint8_t {
  exact,       // times exp(m_old - m_new)
  as_printed,  // times exp(m_new - m_old), as in line 10 of the FA2 paper: wrong, for tests that show it
};

/// FP8 operands made inside the model from wider inputs (FA3, section 3.3).
struct Fp8Operands {
  bool per_block = true;   // one scale per tile of Q, K and V; else one per tensor
  bool incoherent = true;  // Q and K times one random orthogonal matrix first
};

struct ModelOptions {
  std::int64_t query_tile = 64;  // Br
  std::int64_t key_tile = 64;    // Bc

  Dtype s = Dtype::f32;          // scores are rounded to it before the softmax
  Dtype p_forward = Dtype::f32;  // P is rounded to it before P V, times 2^p_offset
  int p_offset = 0;
  bool p_tile_scale = false;                        // P in f8: every tile by its own power of two instead of 2^p_offset
  Dtype p_backward = Dtype::f32;                    // P and dS are rounded to it before their products
  Dtype o_between = Dtype::f32;                     // O where it rests in slow memory between steps (FA1, split keys)
  std::optional<attest_accumulation> accumulation;  // as tensor cores add; none: one float chain
  std::optional<Fp8Operands> fp8;

  Rescale rescale = Rescale::exact;
  double rescale_threshold = 0;  // FA4: the largest rise of the maximum, in powers of two, that is not followed
  std::int64_t splits = 4;       // split keys

  Ledger* ledger = nullptr;  // counts what the model does; not owned
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
  if (type == Dtype::f64) options.s = options.o_between = Dtype::f64;
  return options;
}

}  // namespace attest

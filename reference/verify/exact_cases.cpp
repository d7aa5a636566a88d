// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/exact_cases.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "reference/problem/exact_inputs.h"
#include "reference/problem/layout.h"

namespace attest {
namespace {

std::int64_t power_below(std::int64_t n) {
  return n <= 0 ? 0 : static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(n)));
}

void limit_keys(Problem& p, std::int64_t most) {
  for (std::int64_t& n : p.seq_k) n = std::min(n, most);
}

void fit_keys(Problem& p, std::string_view family) {
  if (family == "exact-prefix") {
    const bool narrow = p.dtype == Dtype::f8e4m3 || p.dtype == Dtype::f8e5m2;
    limit_keys(p, p.dtype == Dtype::f8e4m3 ? 15 : narrow ? 7 : p.dtype == Dtype::bf16 ? 255 : 2047);
  }
  for (std::int64_t& n : p.seq_k) {
    if (n == 0) continue;
    if (family == "exact-ladder") n = n >= 256 ? 256 : n >= 64 ? 64 : n >= 16 ? 16 : 4;
    if (family == "exact-staircase") n = std::clamp<std::int64_t>(n / 16 * 16, 32, 256);
    if (family == "exact-dropout" || family == "exact-census") n = std::min<std::int64_t>(n, 256);
    if (family == "exact-uniform" || family == "exact-uniform-k" || family == "exact-duplicate" ||
        family == "exact-dropout") {
      n = power_below(n);
    }
  }
  if (family == "exact-census") {
    const std::int64_t keys = std::max<std::int64_t>(power_below(p.max_k()), 1);
    std::fill(p.seq_k.begin(), p.seq_k.end(), keys);
  }
}

void fit_masks(Problem& p, std::string_view family) {
  const bool wants_bias = p.bias.has_value();
  p.mask.reset();
  p.bias.reset();
  p.block.reset();
  p.dropout.reset();
  if (family == "exact-census") {
    if (wants_bias) {
      p.bias = Bias{{false, true, true, true}, {}, 0};
    } else {
      p.mask = ExplicitMask{{true, true, true, true}, 0.5};
    }
  }
  if (family == "exact-dropout") p.dropout = Dropout{0.5, p.fill.seed + 1, 0};
  const bool ends_allowed = family == "exact-constant" || family == "exact-retrieval";
  if (ends_allowed) return;
  if (family != "exact-prefix") p.causal = Causal::none;
  p.window.reset();
  // 31 + 1 + 32 visible keys away from the ends, and every smaller number near them.
  if (family == "exact-window") p.window = Window{31, 32, Causal::none};
  if (family == "exact-diagonal") p.window = Window{0, 0, Causal::none};
}

}  // namespace

Problem with_exact_family(Problem p, std::string_view family) {
  const Dtype out = p.output_dtype();
  if (p.dtype == Dtype::f64 || p.dtype == Dtype::f32) p.dtype = Dtype::f16;
  if (out != Dtype::f16 && out != Dtype::bf16) p.out_dtype.reset();
  p.fill.family = family;
  p.fill.parameter.reset();
  p.softcap = 0;
  p.alibi = p.d_lse = p.d_bias = false;
  p.strides = {};
  fit_masks(p, family);
  fit_keys(p, family);
  // With a power of two as the scale the gradients of uniform scores are exact as well.
  p.scale = 0.125;
  if (family == "exact-ladder" || family == "exact-staircase") p.scale = kLn2Scale;
  if (family == "exact-retrieval") {
    p.dim = std::max<std::int64_t>(p.dim, 64);
    p.scale.reset();
  }
  // A field that repeats its default is left out of the text.
  if (p.dim_v == p.dim) p.dim_v.reset();
  const std::optional<Dtype> given = std::exchange(p.out_dtype, std::nullopt);
  if (given && *given != p.output_dtype()) p.out_dtype = given;
  p.extent_q.reset();
  p.extent_k.reset();
  validate(p);
  return p;
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// The inputs of a Problem, as exact doubles of the storage type. Every element comes from (family, seed, tensor,
// b, i, h, d) by a counter-based generator, so it is the same in every layout, on every machine, and can be made
// alone. Along a dimension where the tensor's stride is 0 (and its extent is not 1) all elements are equal.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "reference/problem/problem.h"
#include "reference/problem/values.h"

namespace attest {

/// A dense operand over [B|1, Hq|1, max_q|1, max_k|1] (see Broadcast); for the block mask the last two count tiles.
template <typename T>
struct Operand {
  std::int64_t extent_b = 0, extent_h = 0, extent_q = 0, extent_k = 0;
  std::vector<T> data;  // [extent_b, extent_h, extent_q, extent_k]; empty where the problem has none

  bool empty() const { return data.empty(); }
  std::size_t index(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const auto at = [](std::int64_t x, std::int64_t extent) { return extent == 1 ? 0 : x; };
    return static_cast<std::size_t>(
        ((at(b, extent_b) * extent_h + at(h, extent_h)) * extent_q + at(i, extent_q)) * extent_k + at(j, extent_k));
  }
  T at(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const { return data[index(b, h, i, j)]; }
};

struct Inputs {
  Values q;                          // [tokens_q, Hq, D]
  Values k;                          // [tokens_k, Hkv, D]
  Values v;                          // [tokens_k, Hkv, Dv]
  Values d_o;                        // [tokens_q, Hq, Dv]; empty for forward only
  std::vector<double> d_lse;         // [tokens_q, Hq]; empty unless d_lse
  Operand<double> bias;              // [B|1, Hq|1, max_q|1, max_k|1]; values of bias_dtype
  Operand<std::uint8_t> mask;        // [B|1, Hq|1, max_q|1, max_k|1]; 1 shows
  Operand<std::uint8_t> block_mask;  // [B, Hq, ceil(max_q / rows), ceil(max_k / cols)], 1 shows
  std::vector<double> alibi_slopes;  // [Hq], float32 values
};

/// How the errors of a family behave, which decides the bound that judges it (docs/numerics.md).
enum class FamilyKind : std::uint8_t { random, structured, exact, captured };

struct Family {
  std::string_view name;
  FamilyKind kind;
  std::string_view description;  // one line
  std::string_view parameter;    // what `family:X` means, empty where there is none
  double default_parameter;
};

std::span<const Family> families();
/// Throws InvalidRequest("fill", ...) for an unknown name.
const Family& family(std::string_view name);

Inputs make_inputs(const Problem& problem);

/// Uniform 64-bit word for (seed, stream, index), by the generator of the inputs (input_random.h). It has nothing in
/// common with the Philox4x32-10 of dropout, which every implementation of the contract writes for itself.
std::uint64_t random_word(std::uint64_t seed, std::uint64_t stream, std::uint64_t index);

}  // namespace attest

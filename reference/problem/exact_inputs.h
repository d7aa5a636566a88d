// SPDX-License-Identifier: Apache-2.0
// Exact families: inputs of small dyadic numbers whose attention is known in closed form, to the last bit of a 16-bit
// output, for any tile size, order of summation and split (reference/oracle/closed_form.h has the results). Each needs a
// certain shape of the problem, so that sums are exact in float32 and the counts of visible keys are what it says.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "reference/problem/input_families.h"

namespace attest {

/// float32(ln 2): the scale that makes exp of an integer score a power of two.
inline constexpr double kLn2Scale = 0x1.62e43p-1;

/// What family `name` needs and `problem` lacks, in a few words; empty where the problem will do.
std::string exact_family_needs(std::string_view name, const Problem& problem);

/// Level n >= 0 of key j of an exact-ladder or exact-staircase: its score is -n ln 2.
std::int64_t ladder_level(const Problem& problem, const RandomStream& head, std::int64_t j, std::int64_t keys);

/// exact-census: how many keys (a power of two, or with a bias sometimes 0) row (b, h, i) sees, and which.
void census_row(const Problem& problem, const RandomStream& row, std::span<std::uint8_t> shown);

void exact_uniform(const InputRow& row);
void exact_uniform_k(const InputRow& row);
void exact_duplicate(const InputRow& row);
void exact_prefix(const InputRow& row);
void exact_window(const InputRow& row);
void exact_retrieval(const InputRow& row);
void exact_census(const InputRow& row);
void exact_ladder(const InputRow& row);
void exact_dropout(const InputRow& row);
void exact_constant(const InputRow& row);
void exact_diagonal(const InputRow& row);
void exact_opposite(const InputRow& row);

}  // namespace attest

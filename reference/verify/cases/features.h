// SPDX-License-Identifier: Apache-2.0
// What a case is made of, as features with a few values each: the terms in which runs are planned and their coverage is
// counted. Every value is read off the Problem alone.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/problem/problem.h"
#include "reference/verify/cases/covering_array.h"
#include "reference/verify/generate.h"

namespace attest {

struct Feature {
  std::string name;
  std::vector<std::string> values;
  std::string meaning;  // what the values mean, where the names do not say it
};

/// In a fixed order; the last is the input family.
std::span<const Feature> features();
/// How many values each feature has, as the factors of a covering array.
std::vector<int> value_counts();
/// Throws std::logic_error for an unknown name.
int feature_index(std::string_view name);
int value_index(int feature, std::string_view value);

/// The value of each feature; kNoValue where the case has none of the listed ones (an exact family, a window of odd size).
/// Lengths and windows are measured in the tiles of `space`.
FactorValues feature_values(const Problem& problem, const CaseSpace& space);

/// "causal=bottom-right, pages=1"
std::string describe(const Combination& combination);

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// The cases of a covering array over the features: every pair of feature values (or triple) that a kernel takes and the
// contract allows is in at least one of them. The list follows from space, seed and kernel alone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "reference/problem/problem.h"
#include "reference/verify/cases/covering_array.h"
#include "reference/verify/generate.h"

namespace attest {

struct CoveringCases {
  std::vector<Problem> cases;
  int strength = 0;
  std::int64_t combinations = 0;      // of that many feature values, all that can be written down
  std::int64_t covered = 0;
  std::vector<Unreached> unreached;   // the others: excluded by the contract, or declined, or not found, with the reason
};

/// Why a kernel does not take a problem; empty where it does.
using WhyDeclined = std::function<std::string(const Problem&)>;

CoveringCases covering_cases(const CaseSpace& space, int strength, std::uint64_t seed, const WhyDeclined& why_declined = {});

/// Values of features that exclude each other: by the contract, because nothing could be judged, or by the directions of
/// `space`.
std::vector<Forbidden> rules_for(const CaseSpace& space);

}  // namespace attest

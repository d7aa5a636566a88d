// SPDX-License-Identifier: Apache-2.0
// A candidate beside a baseline on the same cases: who fails where, whose errors are larger, who is faster.
#pragma once

#include <string>
#include <vector>

#include "reference/verify/verdict.h"
#include "tools/subject.h"

namespace attest::tools {

/// Runs the baseline on cases that the candidate gave values for, until `seconds` have passed; sentences for the report.
std::vector<std::string> compare_with_baseline(Subject& candidate, Subject& baseline, const std::vector<Verdict>& verdicts,
                                               double seconds);

}  // namespace attest::tools

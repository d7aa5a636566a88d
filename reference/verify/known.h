// SPDX-License-Identifier: Apache-2.0
// Known failures that are waived by issue number. A file of lines
//   CASE-PATTERN | FAILURE | ISSUE          # comment
// where every word of the pattern must match a word of the case text (* and ? as in file names), and FAILURE matches
// "check NAME", "value of TENSOR", "error" or "untrusted":
//   causal=bottom-right layout=thd | value of d* | 1234
#pragma once

#include <string>
#include <vector>

#include "reference/verify/verdict.h"

namespace attest {

struct KnownFailure {
  std::vector<std::string> pattern;  // words; none matches every case
  std::string failure;
  std::string issue;
};

/// Throws InvalidRequest whose field is "known" (unreadable) or "FILE:LINE".
std::vector<KnownFailure> read_known(const std::string& path);

/// Waives a verdict all of whose failures are known. One that passes although a line names its case becomes a fail of
/// check "known": the line is out of date, or the case did not show what it was meant to.
void apply_known(const std::vector<KnownFailure>& known, Verdict& verdict);

}  // namespace attest

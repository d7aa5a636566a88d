// SPDX-License-Identifier: Apache-2.0
// All that a run of the gate found, and its forms: a summary in Markdown, annotations of a CI service, one HTML page.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "reference/verify/gate/error_map.h"
#include "reference/verify/verdict.h"

namespace attest {

struct WorstCase {
  Verdict verdict;
  std::vector<ErrorMap> maps;
};

struct GateResult {
  std::string title;                                             // the kernels and the seed
  std::vector<std::pair<std::string, std::string>> environment;  // what it ran on, name and value
  std::vector<Verdict> verdicts;
  std::vector<WorstCase> worst;    // by score, worst first
  std::vector<std::string> notes;  // sentences: phases, what was declined or not run, the comparison with a baseline
};

/// Counts, notes and the first failures; at most about 100 KB, for the step summary of a CI service.
std::string markdown_summary(const GateResult& result);

/// GitHub workflow commands, one `::error` a line, at most ten (as many as GitHub shows).
std::string github_annotations(const GateResult& result);

/// One page that needs nothing else: counts by kernel, direction and feature, the distribution of scores, the worst cases
/// with error maps, every case with its command. Under 2 MiB for 10,000 cases.
std::string html_page(const GateResult& result);

}  // namespace attest

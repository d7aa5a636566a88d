// SPDX-License-Identifier: Apache-2.0
// A corpus: a text file with one case a line; # starts a comment, empty lines are skipped.
#pragma once

#include <string>
#include <vector>

#include "reference/problem/problem.h"

namespace attest {

/// Throws InvalidRequest whose field is "FILE" (unreadable) or "FILE:LINE: FIELD" (a case that does not parse).
std::vector<Problem> read_corpus(const std::string& path);

/// Appends a case with a comment line before it, unless the file has it already; makes the file where there is none.
/// Throws InvalidRequest("failures", ...) where it cannot be written.
void add_to_corpus(const std::string& path, const Problem& problem, const std::string& comment);

}  // namespace attest

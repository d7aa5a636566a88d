// SPDX-License-Identifier: Apache-2.0
// What a harness claims; a claim that does not hold is a finding.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "reference/problem/invalid_request.h"

namespace attest::fuzz {

inline void require(bool holds, const char* claim) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", claim);
  std::abort();
}

/// A refusal is of the file, says what was found and what is allowed, and is one line below `most` bytes.
inline void require_refusal_of(std::string_view file, const InvalidRequest& refusal, std::size_t most) {
  require(refusal.field() == file, "a refusal must name the file");
  require(!refusal.value().empty() && !refusal.allowed().empty(), "a refusal must say what was found and allowed");
  const std::string_view line = refusal.what();
  require(line.size() < most && line.find('\n') == std::string_view::npos, "a refusal must be one short line");
}

}  // namespace attest::fuzz

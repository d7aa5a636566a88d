// SPDX-License-Identifier: Apache-2.0
// Refusals of files: one line each, however long or odd the text is that a file has where it should not.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "reference/problem/invalid_request.h"

namespace attest {

[[noreturn]] inline void refuse(const std::string& file, const std::string& found, const std::string& allowed) {
  throw InvalidRequest(file, found, allowed);
}

/// A text from a file, short, printable and in quotes.
std::string in_quotes(std::string_view text, std::size_t shown = 120);

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// Files that a subcommand writes.
#pragma once

#include <fstream>
#include <string>

#include <fmt/format.h>

#include "reference/problem/invalid_request.h"

namespace attest::tools {

/// Opened before any work, so that a path that cannot be written is known at once: then InvalidRequest naming `field`.
/// A closed stream for an empty path.
inline std::ofstream open_output(const char* field, const std::string& path) {
  std::ofstream file;
  if (path.empty()) return file;
  file.open(path, std::ios::trunc);
  if (!file) throw InvalidRequest(field, fmt::format("'{}'", path), "a file that can be written");
  return file;
}

}  // namespace attest::tools

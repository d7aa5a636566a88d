// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4) of a file, to say which build of a kernel a report is about.
#pragma once

#include <string>

namespace attest::tools {

/// 64 hexadecimal digits; empty where the file cannot be read.
std::string file_sha256(const std::string& path);

}  // namespace attest::tools

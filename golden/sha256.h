// SPDX-License-Identifier: Apache-2.0
// SHA-256 of a file's bytes, in hexadecimal.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace attest::golden {

std::string sha256(std::span<const std::byte> bytes);
std::string sha256(std::string_view text);

}  // namespace attest::golden

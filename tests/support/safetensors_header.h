// SPDX-License-Identifier: Apache-2.0
// The JSON header of a safetensors file as a text, to be spoiled by a test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace attest::testing_support {

inline std::string header_of(const std::vector<std::byte>& bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  return {reinterpret_cast<const char*>(bytes.data()) + 8, static_cast<std::size_t>(length)};
}

/// The file with `from` in its header replaced by `to`, and a header length that fits.
inline std::vector<std::byte> with_header(const std::vector<std::byte>& bytes, const std::string& from, const std::string& to) {
  std::string header = header_of(bytes);
  const std::size_t data = 8 + header.size(), at = header.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in " << header;
  if (at == std::string::npos) return bytes;
  header.replace(at, from.size(), to);
  std::vector<std::byte> changed(8);
  const std::uint64_t length = header.size();
  std::memcpy(changed.data(), &length, 8);
  const auto text = std::as_bytes(std::span(header));
  changed.insert(changed.end(), text.begin(), text.end());
  changed.insert(changed.end(), bytes.begin() + static_cast<std::ptrdiff_t>(data), bytes.end());
  return changed;
}

}  // namespace attest::testing_support

// SPDX-License-Identifier: Apache-2.0
#include "golden/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <stdexcept>

namespace attest::golden {

std::string sha256(std::span<const std::byte> bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, EVP_sha256(), nullptr) != 1) {
    throw std::runtime_error("libcrypto could not compute a SHA-256");
  }
  std::string text;
  for (unsigned int n = 0; n < length; ++n) text += fmt::format("{:02x}", digest[n]);
  return text;
}

std::string sha256(std::string_view text) { return sha256(std::as_bytes(std::span(text))); }

}  // namespace attest::golden

// SPDX-License-Identifier: Apache-2.0
// Any bytes as a case file of a golden pack are either refused with one short line that names the file, or are a case that
// is the same bytes whenever it is written again.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "fuzz/require.h"
#include "golden/case_file.h"
#include "reference/problem/invalid_request.h"
#include "reference/problem/safetensors.h"

namespace {

using attest::fuzz::require;
using attest::fuzz::require_refusal_of;

const char* const kFile = "case.safetensors";

std::optional<attest::golden::GoldenCase> read(std::vector<std::byte> bytes) {
  try {
    return attest::golden::read_case(attest::SafetensorsFile::parse(kFile, std::move(bytes)));
  } catch (const attest::InvalidRequest& refusal) {
    require_refusal_of(kFile, refusal, 2000);
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* first = reinterpret_cast<const std::byte*>(data);
  const auto golden = read(std::vector<std::byte>(first, first + size));
  if (!golden) return 0;
  const std::vector<std::byte> bytes = attest::golden::write_case(*golden);
  const auto again = read(bytes);
  require(again.has_value(), "what was written must be read");
  require(attest::golden::write_case(*again) == bytes, "writing must be stable");
  return 0;
}

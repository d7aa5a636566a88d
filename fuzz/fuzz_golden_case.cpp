// SPDX-License-Identifier: Apache-2.0
// Any bytes as a case file of a golden pack are either refused with one short line that names the file, or are a case that
// is the same bytes whenever it is written again.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "golden/case_file.h"
#include "reference/problem/invalid_request.h"
#include "reference/problem/safetensors.h"

namespace {

const char* const kFile = "case.safetensors";

void require(bool holds, const char* claim) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", claim);
  std::abort();
}

std::optional<attest::golden::GoldenCase> read(std::vector<std::byte> bytes) {
  try {
    return attest::golden::read_case(attest::SafetensorsFile::parse(kFile, std::move(bytes)));
  } catch (const attest::InvalidRequest& refusal) {
    require(refusal.field() == kFile, "a refusal must name the file");
    require(!refusal.value().empty() && !refusal.allowed().empty(), "a refusal must say what was found and allowed");
    const std::string_view line = refusal.what();
    require(line.size() < 2000 && line.find('\n') == std::string_view::npos, "a refusal must be one short line");
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

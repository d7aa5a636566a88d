// SPDX-License-Identifier: Apache-2.0
// Any text is either refused with an InvalidRequest that names a field of the case text, or is a Problem that
// prints to a text which parses back to the same Problem and prints the same again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "reference/problem/case_text.h"
#include "reference/problem/case_text_fields.h"
#include "reference/problem/invalid_request.h"

namespace {

void require(bool holds, const char* claim, const std::string& text) {
  if (holds) return;
  std::fprintf(stderr, "%s: %s\n", claim, text.c_str());
  std::abort();
}

bool names_a_field(std::string_view name) {
  const auto fields = attest::case_fields();
  return name == "case" ||
         std::any_of(fields.begin(), fields.end(), [&](const auto& field) { return field.name == name; });
}

std::optional<attest::Problem> parse(std::string_view text) {
  try {
    return attest::parse_case(text);
  } catch (const attest::InvalidRequest& refusal) {
    require(names_a_field(refusal.field()), "a refusal must name a field", refusal.what());
    require(!refusal.value().empty() && !refusal.allowed().empty(), "a refusal must say what was given and allowed",
            refusal.what());
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto problem = parse(text);
  if (!problem) return 0;
  const std::string printed = attest::print_case(*problem);
  const auto again = parse(printed);
  require(again.has_value(), "what was printed must parse", printed);
  require(*again == *problem, "parse(print(p)) must be p", printed);
  require(attest::print_case(*again) == printed, "printing must be stable", printed);
  return 0;
}

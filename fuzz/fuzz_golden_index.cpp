// SPDX-License-Identifier: Apache-2.0
// Any bytes as the index.json of a golden pack are either refused with one short line that names the index, or are a pack
// whose files lie within its folder and that is the same after it has been written and read again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fuzz/require.h"
#include "golden/pack_index.h"
#include "reference/problem/invalid_request.h"

namespace {

using attest::fuzz::require;
using attest::fuzz::require_refusal_of;
using attest::golden::Pack;
using attest::golden::PackEntry;
using attest::golden::PackFile;

const char* const kIndex = "index.json";

std::optional<Pack> parse(std::string_view text) {
  try {
    return attest::golden::parse_index(kIndex, text);
  } catch (const attest::InvalidRequest& refusal) {
    require_refusal_of(kIndex, refusal, 1000);
    return std::nullopt;
  }
}

void check_file(const PackFile& file) {
  require(!file.path.empty() && file.path.front() != '/' && file.path.find("..") == std::string::npos,
          "files must lie within the folder");
}

bool same(const PackFile& a, const PackFile& b) {
  return a.path == b.path && a.bytes == b.bytes && a.sha256 == b.sha256;
}

bool same(const PackEntry& a, const PackEntry& b) {
  return same(a.file, b.file) && a.text == b.text && a.set == b.set && a.profile == b.profile && a.flags == b.flags &&
         a.exact_tensors == b.exact_tensors &&
         std::ranges::equal(a.others, b.others, [](const PackFile& x, const PackFile& y) { return same(x, y); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::optional<Pack> pack = parse({reinterpret_cast<const char*>(data), size});
  if (!pack) return 0;
  require(!pack->entries.empty(), "a pack has cases");
  for (const PackEntry& entry : pack->entries) {
    check_file(entry.file);
    std::ranges::for_each(entry.others, check_file);
  }
  const std::string text = attest::golden::index_text(*pack);
  const std::optional<Pack> again = parse(text);
  require(again.has_value(), "what was written must be read");
  require(again->name == pack->name && again->entries.size() == pack->entries.size(), "no case may be lost or gained");
  for (std::size_t n = 0; n < pack->entries.size(); ++n) {
    require(same(pack->entries[n], again->entries[n]), "a case must survive");
  }
  require(attest::golden::index_text(*again) == text, "writing must be stable");
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Whether a pack is what it says: schema, sizes and hashes, flags, duplicates, stray files, inputs that are those of
// the case text, masks that are the oracle's.
#pragma once

#include <string>
#include <vector>

namespace attest::golden {

/// One sentence for each breach; empty for a clean pack.
std::vector<std::string> lint_pack(const std::string& folder);

}  // namespace attest::golden

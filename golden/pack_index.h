// SPDX-License-Identifier: Apache-2.0
// index.json of a pack as a text, and back (docs/golden-format.md). What breaks the format is refused with one
// InvalidRequest whose field is the index's name.
#pragma once

#include <string>
#include <string_view>

#include "golden/pack.h"

namespace attest::golden {

/// `name` stands for the index in errors. The folder of the pack is left empty.
Pack parse_index(const std::string& name, std::string_view text);

/// One case a line, so that a change of one shows as one.
std::string index_text(const Pack& pack);

}  // namespace attest::golden

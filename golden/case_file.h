// SPDX-License-Identifier: Apache-2.0
// A case as the bytes of a safetensors file, and back (docs/golden-format.md). What breaks the format anywhere is
// refused with one InvalidRequest whose field is the file's name.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "golden/golden_case.h"
#include "reference/problem/safetensors.h"

namespace attest::golden {

/// Equal cases give equal bytes.
std::vector<std::byte> write_case(const GoldenCase& golden);

GoldenCase read_case(const SafetensorsFile& file);

/// The __metadata__ of the case's file.
Metadata case_metadata(const GoldenCase& golden);

/// The words of a text that are separated by spaces.
std::vector<std::string> words_of(std::string_view text);

}  // namespace attest::golden

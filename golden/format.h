// SPDX-License-Identifier: Apache-2.0
// Numbers of the pack format (docs/golden-format.md).
#pragma once

#include <string_view>

namespace attest::golden {

inline constexpr std::string_view kFormat = "attest-golden";
inline constexpr int kFormatVersion = 1;     // of the files; a reader refuses any other
inline constexpr int kContractVersion = 1;   // of docs/contract.md
inline constexpr int kGeneratorVersion = 2;  // raised when the same corpus would give other bytes

}  // namespace attest::golden

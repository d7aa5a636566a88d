// SPDX-License-Identifier: Apache-2.0
// The flags of a case: the kinds of bug that it is aimed at.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace attest::golden {

struct Flag {
  std::string_view name;
  std::string_view description;  // what goes wrong in a kernel that has the bug
};

std::span<const Flag> flags();
/// Null for an unknown name.
const Flag* find_flag(std::string_view name);
/// "one of A, B, C"
std::string known_flags();

}  // namespace attest::golden

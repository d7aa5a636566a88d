// SPDX-License-Identifier: Apache-2.0
// The values that fields of a case text are made of: numbers, lists, words, shapes and paths, read and printed. What is
// not such a value is refused by the name of its field. Internal to case_text_fields.cpp.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "reference/problem/dtype.h"
#include "reference/problem/problem.h"

namespace attest::case_text {

[[noreturn]] void refuse(std::string_view field, std::string_view value, std::string allowed);

template <typename Number>
Number number(std::string_view field, std::string_view text, const char* allowed) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) refuse(field, text, allowed);
  return value;
}

std::int64_t integer(std::string_view field, std::string_view text);
double real(std::string_view field, std::string_view text);
std::vector<std::string_view> split(std::string_view text, char separator);
/// Separated by commas.
std::vector<std::int64_t> integers(std::string_view field, std::string_view text);
/// "N", or "N/N" with a second.
void parse_pair(std::string_view field, std::string_view text, std::int64_t& first,
                std::optional<std::int64_t>& second);

/// The words that one field takes, with what each stands for.
template <typename Enum, std::size_t N>
struct Words {
  std::string_view field;
  std::array<std::pair<std::string_view, Enum>, N> rows;

  Enum parse(std::string_view text) const {
    std::vector<std::string_view> names;
    for (const auto& [name, value] : rows) {
      if (name == text) return value;
      names.push_back(name);
    }
    refuse(field, text, fmt::format("one of: {}", fmt::join(names, " ")));
  }
  std::string print(Enum value) const {
    for (const auto& [name, row] : rows) {
      if (row == value) return std::string(name);
    }
    return "";
  }
};

Dtype dtype(std::string_view field, std::string_view text);
bool on_off(std::string_view field, std::string_view text);
/// "bhqk" with 1 for each broadcast dimension.
Broadcast broadcast(std::string_view field, std::string_view text);
std::string print_broadcast(const Broadcast& shape);

/// Paths may hold spaces: %XX stands for any byte.
std::string percent_decode(std::string_view text);
std::string percent_encode(std::string_view path);

}  // namespace attest::case_text

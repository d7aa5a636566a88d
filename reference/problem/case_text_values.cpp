// SPDX-License-Identifier: Apache-2.0
#include "reference/problem/case_text_values.h"

#include "reference/problem/invalid_request.h"

namespace attest::case_text {

void refuse(std::string_view field, std::string_view value, std::string allowed) {
  throw InvalidRequest(std::string(field), value.empty() ? "nothing" : fmt::format("'{}'", value), std::move(allowed));
}

std::int64_t integer(std::string_view field, std::string_view text) {
  return number<std::int64_t>(field, text, "a whole number");
}

double real(std::string_view field, std::string_view text) { return number<double>(field, text, "a number"); }

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  std::size_t start = 0;
  while (true) {
    const std::size_t end = text.find(separator, start);
    parts.push_back(text.substr(start, end - start));
    if (end == std::string_view::npos) return parts;
    start = end + 1;
  }
}

std::vector<std::int64_t> integers(std::string_view field, std::string_view text) {
  std::vector<std::int64_t> values;
  for (const std::string_view part : split(text, ',')) values.push_back(integer(field, part));
  return values;
}

void parse_pair(std::string_view field, std::string_view text, std::int64_t& first,
                std::optional<std::int64_t>& second) {
  const auto parts = split(text, '/');
  if (parts.size() > 2) refuse(field, text, "N or N/N");
  first = integer(field, parts[0]);
  second = parts.size() == 2 ? std::optional(integer(field, parts[1])) : std::nullopt;
}

Dtype dtype(std::string_view field, std::string_view text) {
  const std::optional<Dtype> type = dtype_from_name(text);
  if (!type) refuse(field, text, "one of: f64 f32 f16 bf16 f8e4m3 f8e5m2");
  return *type;
}

bool on_off(std::string_view field, std::string_view text) {
  if (text == "on") return true;
  if (text == "off") return false;
  refuse(field, text, "on or off");
}

Broadcast broadcast(std::string_view field, std::string_view text) {
  constexpr std::string_view letters = "bhqk";
  bool own[4] = {};
  bool fits = text.size() == letters.size();
  for (std::size_t i = 0; fits && i < letters.size(); ++i) {
    own[i] = text[i] == letters[i];
    fits = own[i] || text[i] == '1';
  }
  if (!fits) refuse(field, text, "a shape such as bhqk, 11qk or b11k: each of b h q k, or 1 where it is broadcast");
  return {own[0], own[1], own[2], own[3]};
}

std::string print_broadcast(const Broadcast& shape) {
  return fmt::format("{}{}{}{}", shape.batch ? 'b' : '1', shape.head ? 'h' : '1', shape.query ? 'q' : '1',
                     shape.key ? 'k' : '1');
}

std::string percent_decode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    unsigned value = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (error != std::errc{} || digits.size() != 2 || end != digits.data() + 2) {
      refuse("fill", text, "a path in which % is followed by two hexadecimal digits");
    }
    out += static_cast<char>(value);
    i += 2;
  }
  return out;
}

std::string percent_encode(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= ' ' || c == '%' || byte >= 0x7f) {
      out += fmt::format("%{:02X}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace attest::case_text

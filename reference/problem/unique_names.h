// SPDX-License-Identifier: Apache-2.0
// JSON of a file, in which no object may name a key twice: readers of the same file would take different values.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace attest {

/// `Json` is a type of nlohmann::basic_json; `refuse_twice(name)` throws. Throws Json::exception where the text is none.
template <typename Json, typename RefuseTwice>
Json parse_with_unique_names(std::string_view text, const RefuseTwice& refuse_twice) {
  std::vector<std::set<std::string>> names;  // of the objects that are open
  const auto watch = [&](int, typename Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) names.emplace_back();
    if (event == Json::parse_event_t::object_end) names.pop_back();
    if (event == Json::parse_event_t::key && !names.back().insert(parsed.template get<std::string>()).second) {
      refuse_twice(parsed.template get<std::string>());
    }
    return true;
  };
  return Json::parse(text.begin(), text.end(), watch);
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
#include "reference/problem/refusal.h"

#include <algorithm>

namespace attest {

std::string in_quotes(std::string_view text, std::size_t shown) {
  std::string part(text.substr(0, shown));
  const auto is_odd = [](unsigned char c) { return c < ' ' || c == 0x7F; };
  std::replace_if(part.begin(), part.end(), is_odd, '?');
  return '"' + part + (text.size() > shown ? "...\"" : "\"");
}

}  // namespace attest

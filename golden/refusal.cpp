// SPDX-License-Identifier: Apache-2.0
#include "golden/refusal.h"

#include <algorithm>

namespace attest::golden {

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShown = 120;
  std::string shown(text.substr(0, kShown));
  const auto is_odd = [](unsigned char c) { return c < ' ' || c == 0x7F; };
  std::replace_if(shown.begin(), shown.end(), is_odd, '?');
  return '"' + shown + (text.size() > kShown ? "...\"" : "\"");
}

}  // namespace attest::golden

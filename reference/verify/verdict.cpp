// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/verdict.h"

#include <array>
#include <cmath>

#include <fmt/format.h>

namespace attest {

std::string_view name_of(State state) {
  constexpr std::array<std::string_view, 6> names = {"pass", "fail", "untrusted", "unsupported", "error", "waived"};
  return names[static_cast<std::size_t>(state)];
}

std::string_view name_of(Outcome outcome) {
  constexpr std::array<std::string_view, 4> names = {"pass", "fail", "not applicable", "untrusted"};
  return names[static_cast<std::size_t>(outcome)];
}

std::string print_place(const Place& place) {
  std::string text;
  const auto add = [&text](const char* name, std::int64_t value) {
    if (value < 0) return;
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  };
  add("b", place.b);
  add("h", place.h);
  add("i", place.i);
  add("d", place.d);
  return "[" + text + "]";
}

double TensorVerdict::diff() const { return std::abs(got - want); }

double Verdict::score() const {
  const TensorVerdict* worst = worst_tensor();
  return worst == nullptr ? 0 : worst->score;
}

const TensorVerdict* Verdict::worst_tensor() const {
  const TensorVerdict* worst = nullptr;
  for (const TensorVerdict& tensor : tensors) {
    if (worst == nullptr || tensor.score > worst->score) worst = &tensor;
  }
  return worst;
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/verdict.h"

#include <array>
#include <cmath>

#include <fmt/format.h>

namespace attest {

namespace {

// docs/numerics.md, "Warnings".
constexpr double kMostRms = 1.2;
constexpr double kMostBias = 0.15;
constexpr double kLoose = 0.02;

}  // namespace

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

std::vector<std::string> TensorVerdict::warnings() const {
  std::vector<std::string> found;
  // Written so that NaN, which means not known, warns of nothing.
  if (rms > kMostRms) found.push_back(fmt::format("rms: errors are {:.2f} of their expected deviation, above {}", rms, kMostRms));
  if (std::abs(bias) > kMostBias)
    found.push_back(fmt::format("bias: errors lean {} zero by {:.2f} of their deviation, above {}", bias > 0 ? "away from" : "toward",
                                std::abs(bias), kMostBias));
  if (!std::isnan(rms) && score < kLoose)
    found.push_back(fmt::format("loose: the largest score is {:.2g}, below {}: the kernel declares coarser arithmetic than it has",
                                score, kLoose));
  return found;
}

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

// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/checks/check_unit.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "reference/problem/case_text.h"
#include "reference/problem/invalid_request.h"
#include "reference/verify/checks/check_units.h"

namespace attest {
namespace {

constexpr std::array kUnits = {
    &kWritten,
    &kGuards,
    &kInputsUnchanged,
    &kHidden,
    &kNanKey,
    &kPrefix,
    &kRerun,
    &kHistory,
    &kNeighbours,
    &kLayouts,
    &kZeroGradient,
    &kAlone,
    &kReordered,
    &kSameMask,
    &kEmpty,
    &kLinear,
    &kKeyOrder,
    &kSplit,
    &kShift,
    &kSums,
    &kDerivative,
    &kAdditive,
    &kGridLimits,
    &kLargeOffsets,
    &kRefusals,
};

}  // namespace

std::int64_t CheckContext::below(std::int64_t n, const char* check, std::uint64_t draw) const {
  std::uint64_t stream = 0;
  for (const char* c = check; *c != '\0'; ++c) stream = stream * 131 + static_cast<unsigned char>(*c);
  return static_cast<std::int64_t>(random_word(seed_, stream, draw) % static_cast<std::uint64_t>(n));
}

bool CheckContext::base_found(const char* finding) const {
  return std::ranges::any_of(base_.findings, [&](const Finding& found) { return found.check == finding; });
}

namespace {

Problem in_direction(const char* text, Direction direction) {
  Problem problem = parse_case(text);
  problem.direction = direction;
  return problem;
}

}  // namespace

bool runs_on(const CheckUnit& unit, const Problem& problem) {
  return unit.own_cases.empty() ||
         std::ranges::any_of(unit.own_cases, [&](const char* text) { return in_direction(text, problem.direction) == problem; });
}

std::optional<Problem> own_case(const CheckUnit& unit, const Kernel& kernel, std::optional<Direction> direction) {
  for (const char* text : unit.own_cases) {
    const Direction most = kernel.has(Direction::both) ? Direction::both : kernel.has(Direction::forward) ? Direction::forward : Direction::backward;
    const Problem problem = in_direction(text, direction.value_or(most));
    if (kernel.why_unsupported(problem).empty()) return problem;
  }
  return std::nullopt;
}

std::span<const CheckUnit* const> check_units() { return kUnits; }

std::vector<const CheckUnit*> select_checks(const std::string& list) {
  if (list == "none") return {};
  if (list == "all") return {kUnits.begin(), kUnits.end()};
  std::vector<const CheckUnit*> chosen;
  for (std::size_t from = 0; from <= list.size();) {
    const std::size_t comma = std::min(list.find(',', from), list.size());
    const std::string name = list.substr(from, comma - from);
    const auto found = std::ranges::find_if(kUnits, [&](const CheckUnit* unit) { return unit->name == name; });
    if (found == kUnits.end()) {
      std::vector<std::string> names = {"all", "none"};
      for (const CheckUnit* unit : kUnits) names.emplace_back(unit->name);
      throw InvalidRequest("checks", fmt::format("'{}'", name), fmt::format("one or more of {}", fmt::join(names, ", ")));
    }
    chosen.push_back(*found);
    from = comma + 1;
  }
  return chosen;
}

}  // namespace attest

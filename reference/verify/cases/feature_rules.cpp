// SPDX-License-Identifier: Apache-2.0
// Which values of features exclude each other.
#include <fmt/format.h>

#include <stdexcept>

#include "reference/verify/cases/covering_cases.h"
#include "reference/verify/cases/features.h"

namespace attest {
namespace {

struct Rule {
  const char* parts;  // "feature=value|value feature=value": these cannot all be
  const char* reason;
};

constexpr const char* kPacked = "packed tensors have rows past the last offset on one side only";
constexpr const char* kLengths = "these lengths are not in that order";
constexpr const char* kMembers = "these lengths leave no such batch";
constexpr const char* kForward = "only a backward has it";
constexpr const char* kPages = "pages are for a forward alone";
constexpr const char* kTypes = "float64 goes with float64 alone";
constexpr const char* kJudge = "no bound of such values says anything in that type (docs/checks.md)";
constexpr const char* kNothingLeft = "where dropout takes the one key that holds a row, what is left lies below every bound";
constexpr const char* kOverflow = "values at the top of the range overflow";
constexpr const char* kLargeScores = "family=rising|falling|level|edge|cancel|needle|peaked ";

constexpr Rule kRules[] = {
    {"layout=thd padding=left|left-long", kPacked},
    {"padding=none batch=unequal layout=bshd|bhsd", "members that are shorter than the longest are padded"},
    {"q-length=0 lengths=q>k", kLengths},
    {"k-length=0 lengths=q<k", kLengths},
    {"q-length=0 k-length=0 lengths=q<k|q>k", kLengths},
    {"q-length=0 k-length=1|tile-1|tile|tile+1|tile*1.5|other lengths=q=k|q>k", kLengths},
    {"k-length=0 q-length=1|tile-1|tile|tile+1|tile*1.5|other lengths=q=k|q<k", kLengths},
    {"q-length=1 k-length=1 lengths=q<k|q>k", kLengths},
    {"q-length=1 k-length=tile-1|tile|tile+1|tile*1.5|other lengths=q=k|q>k", kLengths},
    {"k-length=1 q-length=tile-1|tile|tile+1|tile*1.5|other lengths=q=k|q<k", kLengths},
    {"q-length=tile-1 k-length=0|1|tile|tile+1|tile*1.5|other lengths=q=k", kLengths},
    {"q-length=tile k-length=0|1|tile-1|tile+1|tile*1.5|other lengths=q=k", kLengths},
    {"q-length=tile+1 k-length=0|1|tile-1|tile|tile*1.5|other lengths=q=k", kLengths},
    {"q-length=tile*1.5 k-length=0|1|tile-1|tile|tile+1|other lengths=q=k", kLengths},
    {"q-length=other k-length=0|1|tile-1|tile|tile+1|tile*1.5 lengths=q=k", kLengths},
    {"q-length=0 batch=equal|unequal", kMembers},
    {"k-length=0 batch=equal|unequal", kMembers},
    {"q-length=1 k-length=1 batch=unequal", kMembers},
    {"direction=forward dlse=on", kForward},
    {"direction=forward dbias=on", kForward},
    {"bias=off dbias=on", "no bias, no gradient of it"},
    {"pages=1|short|long direction=backward|both", kPages},
    {"dtype=f64 out=other", kTypes},
    {"dtype=f64 bias=other-type", kTypes},
    {"dtype=f32|f8e4m3|f8e5m2 bias=other-type", "a bias has that type unless it has that of the inputs"},
    {"family=subnormal dtype=f32|bf16|f8e4m3|f8e5m2", kJudge},
};

std::pair<int, std::uint64_t> parse_part(const std::string& part) {
  const std::size_t equals = part.find('=');
  const int feature = feature_index(part.substr(0, equals));
  std::uint64_t set = 0;
  for (std::size_t from = equals + 1; from <= part.size();) {
    const std::size_t bar = std::min(part.find('|', from), part.size());
    const int value = value_index(feature, part.substr(from, bar - from));
    if (value == kNoValue) throw std::logic_error(fmt::format("there is no value {}", part));
    set |= std::uint64_t{1} << value;
    from = bar + 1;
  }
  return {feature, set};
}

Forbidden parse_rule(const std::string& parts, const char* reason) {
  Forbidden rule{{}, reason};
  for (std::size_t from = 0; from < parts.size();) {
    const std::size_t space = std::min(parts.find(' ', from), parts.size());
    rule.all.push_back(parse_part(parts.substr(from, space - from)));
    from = space + 1;
  }
  return rule;
}

}  // namespace

std::vector<Forbidden> rules_for(const CaseSpace& space) {
  std::vector<Forbidden> rules;
  for (const Rule& rule : kRules) rules.push_back(parse_rule(rule.parts, rule.reason));
  const std::string large = kLargeScores;
  rules.push_back(parse_rule(large + "dtype=f8e4m3|f8e5m2", kJudge));
  rules.push_back(parse_rule(large + "dropout=low|high q-length=0|1", kNothingLeft));
  rules.push_back(parse_rule("family=edge dtype=f64", kJudge));
  rules.push_back(parse_rule("family=edge dropout=low|high", kOverflow));
  rules.push_back(parse_rule("family=edge dtype=f32 out=other", kOverflow));
  constexpr const char* kDirections = "the directions of the kernel, or those asked for";
  if (space.direction == Direction::forward) rules.push_back(parse_rule("direction=backward|both", kDirections));
  if (space.direction == Direction::backward) rules.push_back(parse_rule("direction=forward|both", kDirections));
  return rules;
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/cases/ledger.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "reference/verify/cases/features.h"

namespace attest {
namespace {

const char* plural(int strength) { return strength == 3 ? "triples" : "pairs"; }

std::string reason_of(const Unreached& unreached) { return unreached.reason.empty() ? "no case of this run" : unreached.reason; }

std::map<std::string, std::vector<const Unreached*>> by_reason(const std::vector<Unreached>& missing) {
  std::map<std::string, std::vector<const Unreached*>> reasons;
  for (const Unreached& unreached : missing) reasons[reason_of(unreached)].push_back(&unreached);
  return reasons;
}

std::string counted(const char* title, const std::map<std::string, std::int64_t>& counts) {
  std::string text;
  for (const auto& [reason, count] : counts) text += fmt::format("  {:>7}  {}\n", count, reason);
  return text.empty() ? "" : title + ("\n" + text);
}

}  // namespace

void Ledger::Count::add(State state) {
  if (state == State::unsupported) return;
  ++ran;
  bad += state == State::fail || state == State::untrusted || state == State::error;
  waived += state == State::waived;
}

Ledger::Ledger(std::string kernel, const CaseSpace& space, int strength)
    : kernel_(std::move(kernel)), space_(space), strength_(strength),
      combinations_(value_counts(), rules_for(space), strength, 0) {
  for (const Feature& feature : features()) values_.emplace_back(feature.values.size());
}

void Ledger::add(const Verdict& verdict) {
  states_[std::string(name_of(verdict.state))] += 1;
  if (verdict.state == State::unsupported) {
    unsupported_[verdict.reason] += 1;
    return;
  }
  if (verdict.state == State::waived) waived_[verdict.reason] += 1;
  const FactorValues row = feature_values(verdict.problem, space_);
  combinations_.accept(row);
  for (std::size_t feature = 0; feature < row.size(); ++feature) {
    if (row[feature] != kNoValue) values_[feature][static_cast<std::size_t>(row[feature])].add(verdict.state);
  }
  families_[verdict.problem.fill.family].add(verdict.state);
  for (const CheckRecord& record : verdict.checks) {
    CheckCount& count = checks_[record.check];
    count.outcomes[std::string(name_of(record.outcome))] += 1;
    if (!record.reason.empty()) count.reasons[record.reason] += 1;
  }
}

void Ledger::finish(const CaseList& list, std::int64_t count) {
  declined_ = list.declined(count);
  const CoveringCases covering = list.covering();
  std::map<std::pair<std::vector<int>, std::vector<int>>, std::string> reasons;
  for (const Unreached& unreached : covering.unreached) {
    reasons[{unreached.combination.factors, unreached.combination.values}] = unreached.reason;
  }
  missing_.clear();
  excluded_ = 0;
  for (Unreached& unreached : combinations_.unreached()) {
    excluded_ += unreached.excluded;
    if (unreached.excluded) continue;
    const auto found = reasons.find({unreached.combination.factors, unreached.combination.values});
    if (found != reasons.end()) unreached.reason = found->second;
    missing_.push_back(std::move(unreached));
  }
}

std::string Ledger::summary() const {
  const std::int64_t possible = combinations_.combinations() - excluded_;
  std::string text = fmt::format("{}: {} of {} {} of feature values had a case ({} more exclude each other)\n", kernel_,
                                 combinations_.covered(), possible, plural(strength_), excluded_);
  for (const auto& [reason, all] : by_reason(missing_)) {
    text += fmt::format("  {:>7}  without: {}; {}{}\n", all.size(), reason, describe(all.front()->combination),
                        all.size() > 1 ? ", ..." : "");
  }
  return text;
}

std::string Ledger::table() const {
  std::string text = fmt::format("kernel {}\n", kernel_);
  for (const auto& [state, count] : states_) text += fmt::format("  {:>7}  {}\n", count, state);
  text += fmt::format("{:<12} {:<16} {:>7} {:>7} {:>7}\n", "feature", "value", "ran", "bad", "waived");
  const auto line = [&](const std::string& feature, const std::string& value, const Count& count) {
    text += fmt::format("{:<12} {:<16} {:>7} {:>7} {:>7}\n", feature, value, count.ran, count.bad, count.waived);
  };
  for (std::size_t f = 0; f + 1 < features().size(); ++f) {
    const Feature& feature = features()[f];
    for (std::size_t v = 0; v < feature.values.size(); ++v) line(v == 0 ? feature.name : "", feature.values[v], values_[f][v]);
  }
  bool first = true;
  for (const Family& f : families()) {
    if (f.kind == FamilyKind::captured && !families_.contains(std::string(f.name))) continue;
    const auto found = families_.find(std::string(f.name));
    line(first ? "family" : "", std::string(f.name), found == families_.end() ? Count{} : found->second);
    first = false;
  }
  text += fmt::format("{:<12} {:>7} {:>7} {:>15} {:>10}\n", "check", "pass", "fail", "not applicable", "untrusted");
  for (const auto& [check, count] : checks_) {
    const auto of = [&](const char* outcome) {
      const auto found = count.outcomes.find(outcome);
      return found == count.outcomes.end() ? std::int64_t{0} : found->second;
    };
    text += fmt::format("{:<12} {:>7} {:>7} {:>15} {:>10}\n", check, of("pass"), of("fail"), of("not applicable"), of("untrusted"));
    for (const auto& [reason, times] : count.reasons) text += fmt::format("  {:>7}  {}\n", times, reason);
  }
  text += counted("declined, others took their place", declined_);
  text += counted("unsupported", unsupported_);
  text += counted("waived", waived_);
  text += summary();
  for (const auto& [reason, all] : by_reason(missing_)) {
    text += fmt::format("never reached: {}\n", reason);
    for (const Unreached* unreached : all) text += fmt::format("  {}\n", describe(unreached->combination));
  }
  return text;
}

std::string Ledger::json() const {
  nlohmann::json ledger = {{"kernel", kernel_}, {"states", states_}, {"declined", declined_}, {"unsupported", unsupported_}, {"waived", waived_}};
  const auto entry = [](const Count& count) { return nlohmann::json{{"ran", count.ran}, {"bad", count.bad}, {"waived", count.waived}}; };
  nlohmann::json& by_feature = ledger["features"] = nlohmann::json::object();
  for (std::size_t f = 0; f + 1 < features().size(); ++f) {
    const Feature& feature = features()[f];
    for (std::size_t v = 0; v < feature.values.size(); ++v) by_feature[feature.name][feature.values[v]] = entry(values_[f][v]);
  }
  for (const auto& [name, count] : families_) by_feature["family"][name] = entry(count);
  ledger["checks"] = nlohmann::json::object();
  for (const auto& [check, count] : checks_) ledger["checks"][check] = {{"outcomes", count.outcomes}, {"reasons", count.reasons}};
  nlohmann::json missing = nlohmann::json::array();
  for (const Unreached& unreached : missing_) missing.push_back({{"combination", describe(unreached.combination)}, {"reason", reason_of(unreached)}});
  ledger["combinations"] = {{"strength", strength_}, {"possible", combinations_.combinations() - excluded_},
                            {"excluded", excluded_}, {"covered", combinations_.covered()}, {"never_reached", missing}};
  return ledger.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace attest

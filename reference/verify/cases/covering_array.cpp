// SPDX-License-Identifier: Apache-2.0
// Greedy one row at a time, in the manner of AETG (Cohen et al. 1997): fix a missing combination, then give each other
// factor, in random order, the value that covers most of what is missing; the best of a few such rows. Rules are obeyed by
// propagation: a rule all of whose parts but one are met takes the values of that one away.
#include "reference/verify/cases/covering_array.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <stdexcept>

#include "reference/problem/inputs.h"

namespace attest {
namespace {

constexpr int kRefusals = 8;        // after which a combination is given up
constexpr int kPlainRefusals = 5;   // after which the others are plain
constexpr int kFills = 6;           // rows tried for one proposal
constexpr int kDeadEnds = 200;      // rows begun for one proposal

std::uint64_t bit(int value) { return std::uint64_t{1} << value; }

/// Calls `visit` with every choice of `size` of the factors 0 ... factors - 1, rising.
template <typename Visit>
void for_each_choice(int factors, int size, Visit visit) {
  std::vector<int> chosen(static_cast<std::size_t>(size));
  std::iota(chosen.begin(), chosen.end(), 0);
  while (chosen.empty() || chosen.back() < factors) {
    visit(chosen);
    int at = size - 1;
    while (at >= 0 && chosen[static_cast<std::size_t>(at)] == factors - size + at) --at;
    if (at < 0) return;
    ++chosen[static_cast<std::size_t>(at)];
    for (int next = at + 1; next < size; ++next) chosen[static_cast<std::size_t>(next)] = chosen[static_cast<std::size_t>(next - 1)] + 1;
  }
}

}  // namespace

CoveringArray::CoveringArray(std::vector<int> counts, std::vector<Forbidden> forbidden, int strength, std::uint64_t seed)
    : counts_(std::move(counts)), forbidden_(std::move(forbidden)), rules_given_(forbidden_.size()), strength_(strength), seed_(seed) {
  const int factors = static_cast<int>(counts_.size());
  if (strength < 1 || strength > 3 || strength > factors) throw std::invalid_argument("covering arrays have strength 1, 2 or 3");
  for (const int count : counts_) {
    if (count < 1 || count > 64) throw std::invalid_argument("a factor has 1 to 64 values");
    first_id_.push_back(values_);
    values_ += count;
  }
  std::size_t places = 1;
  for (int size = 1; size <= strength_; ++size) {
    places *= static_cast<std::size_t>(values_);
    status_.emplace_back(places, Status::missing);
  }
  list_targets(1);
}

std::uint64_t CoveringArray::below(std::uint64_t n) { return random_word(seed_, 7, draws_++) % n; }

std::size_t CoveringArray::place(const Combination& combination) const {
  std::size_t at = 0;
  for (std::size_t n = 0; n < combination.factors.size(); ++n) {
    at = at * static_cast<std::size_t>(values_) +
         static_cast<std::size_t>(first_id_[static_cast<std::size_t>(combination.factors[n])] + combination.values[n]);
  }
  return at;
}

CoveringArray::Domains CoveringArray::all_values() const {
  Domains domains;
  for (const int count : counts_) domains.push_back(count == 64 ? ~std::uint64_t{0} : bit(count) - 1);
  return domains;
}

const Forbidden* CoveringArray::broken_rule(Domains& domains) const {
  for (bool changed = true; changed;) {
    changed = false;
    for (const Forbidden& rule : forbidden_) {
      int open = -1;  // the one part that is not met yet
      std::uint64_t taken = 0;
      bool idle = false;
      for (const auto& [factor, set] : rule.all) {
        const std::uint64_t domain = domains[static_cast<std::size_t>(factor)];
        if ((domain & ~set) == 0) continue;
        idle = (domain & set) == 0 || open >= 0;
        if (idle) break;
        open = factor;
        taken = set;
      }
      if (idle) continue;
      if (open < 0) return &rule;
      domains[static_cast<std::size_t>(open)] &= ~taken;
      changed = true;
    }
  }
  return nullptr;
}

const Forbidden* CoveringArray::broken_rule(const Combination& combination) const {
  Domains domains = all_values();
  for (std::size_t n = 0; n < combination.factors.size(); ++n) {
    domains[static_cast<std::size_t>(combination.factors[n])] = bit(combination.values[n]);
  }
  return broken_rule(domains);
}

template <typename Visit>
void CoveringArray::for_each_combination(int size, Visit visit) const {
  for_each_choice(static_cast<int>(counts_.size()), size, [&](const std::vector<int>& factors) {
    Combination combination{factors, std::vector<int>(factors.size(), 0)};
    for (bool more = true; more;) {
      visit(combination);
      more = false;
      for (std::size_t n = factors.size(); n-- > 0 && !more;) {
        more = ++combination.values[n] < counts_[static_cast<std::size_t>(factors[n])];
        if (!more) combination.values[n] = 0;
      }
    }
  });
}

void CoveringArray::list_targets(int size) {
  size_ = size;
  targets_.clear();
  next_ = 0;
  std::vector<Status>& status = status_[static_cast<std::size_t>(size - 1)];
  for_each_combination(size, [&](const Combination& combination) {
    Status& at = status[place(combination)];
    if (at != Status::missing) return;
    if (broken_rule(combination) != nullptr) {
      at = Status::hopeless;
    } else {
      targets_.push_back({combination});
    }
  });
  for (std::size_t n = targets_.size(); n > 1; --n) std::swap(targets_[n - 1], targets_[below(n)]);
}

std::int64_t CoveringArray::gain(const FactorValues& row, int factor, int value) const {
  const std::vector<Status>& status = status_.back();
  const auto values = static_cast<std::size_t>(values_);
  const auto id = static_cast<std::size_t>(first_id_[static_cast<std::size_t>(factor)] + value);
  if (strength_ == 1) return status[id] == Status::missing;
  std::vector<std::size_t> fixed;  // numbers of the values that the row has, rising
  for (std::size_t other = 0; other < row.size(); ++other) {
    if (static_cast<int>(other) != factor && row[other] != kNoValue) fixed.push_back(static_cast<std::size_t>(first_id_[other] + row[other]));
  }
  std::int64_t gained = 0;
  for (std::size_t a = 0; a < fixed.size(); ++a) {
    if (strength_ == 2) {
      gained += status[std::min(fixed[a], id) * values + std::max(fixed[a], id)] == Status::missing;
      continue;
    }
    for (std::size_t b = a + 1; b < fixed.size(); ++b) {
      std::array<std::size_t, 3> ids = {fixed[a], fixed[b], id};
      std::sort(ids.begin(), ids.end());
      gained += status[(ids[0] * values + ids[1]) * values + ids[2]] == Status::missing;
    }
  }
  return gained;
}

std::optional<FactorValues> CoveringArray::fill(const Combination& around, bool plainly, std::string& reason) {
  const std::size_t factors = counts_.size();
  FactorValues row(factors, kNoValue);
  Domains domains = all_values();
  for (std::size_t n = 0; n < around.factors.size(); ++n) {
    const auto factor = static_cast<std::size_t>(around.factors[n]);
    domains[factor] = bit(around.values[n]);
    row[factor] = around.values[n];
  }
  if (const Forbidden* rule = broken_rule(domains)) {
    reason = rule->reason;
    return std::nullopt;
  }
  std::vector<int> order;
  for (std::size_t factor = 0; factor < factors; ++factor) {
    if (row[factor] == kNoValue) order.push_back(static_cast<int>(factor));
  }
  for (std::size_t n = order.size(); n > 1; --n) std::swap(order[n - 1], order[below(n)]);
  for (const int factor : order) {
    std::uint64_t& domain = domains[static_cast<std::size_t>(factor)];
    while (row[static_cast<std::size_t>(factor)] == kNoValue) {
      int best = kNoValue;
      std::int64_t best_gain = -1;
      std::uint64_t ties = 0;
      for (int value = 0; value < counts_[static_cast<std::size_t>(factor)]; ++value) {
        if ((domain & bit(value)) == 0) continue;
        const bool is_plain = plainly && plain_[static_cast<std::size_t>(factor)] == value;
        const std::int64_t gained = is_plain ? std::numeric_limits<std::int64_t>::max() : gain(row, factor, value);
        if (gained < best_gain) continue;
        ties = gained == best_gain ? ties + 1 : 1;
        if (below(ties) == 0) best = value;
        best_gain = gained;
      }
      if (best == kNoValue) return std::nullopt;
      Domains narrowed = domains;
      narrowed[static_cast<std::size_t>(factor)] = bit(best);
      if (const Forbidden* rule = broken_rule(narrowed)) {
        reason = rule->reason;
        domain &= ~bit(best);
        continue;
      }
      row[static_cast<std::size_t>(factor)] = best;
      domains = std::move(narrowed);
      break;
    }
  }
  return row;
}

std::optional<FactorValues> CoveringArray::propose() {
  for (;;) {
    const std::vector<Status>& status = status_[static_cast<std::size_t>(size_ - 1)];
    while (next_ < targets_.size() && status[place(targets_[next_].combination)] != Status::missing) ++next_;
    if (next_ == targets_.size()) {
      if (size_ == strength_) return std::nullopt;
      list_targets(size_ + 1);
      continue;
    }
    Target& target = targets_[next_];
    std::optional<FactorValues> best;
    std::int64_t best_gain = -1;
    std::string reason = "no row obeys all rules";
    for (int begun = 0, filled = 0; begun < kDeadEnds && filled < kFills; ++begun) {
      const std::optional<FactorValues> row = fill(target.combination, target.refusals >= kPlainRefusals && !plain_.empty(), reason);
      if (!row) continue;
      ++filled;
      std::int64_t gained = 0;
      for (std::size_t factor = 0; factor < counts_.size(); ++factor) gained += gain(*row, static_cast<int>(factor), (*row)[factor]);
      if (gained <= best_gain) continue;
      best = row;
      best_gain = gained;
    }
    proposed_ = true;
    if (best) return best;
    target.refusals = kRefusals;
    reject(reason);
  }
}

void CoveringArray::accept(const FactorValues& row) {
  for (int size = 1; size <= strength_; ++size) {
    for_each_choice(static_cast<int>(counts_.size()), size, [&](const std::vector<int>& factors) {
      Combination combination{factors, {}};
      for (const int factor : factors) {
        if (row[static_cast<std::size_t>(factor)] == kNoValue) return;
        combination.values.push_back(row[static_cast<std::size_t>(factor)]);
      }
      // What was thought hopeless, and came by chance, is reached after all.
      Status& status = status_[static_cast<std::size_t>(size - 1)][place(combination)];
      covered_ += size == strength_ && status != Status::covered;
      status = Status::covered;
    });
  }
  if (!proposed_) return;
  const bool still_missing = status_[static_cast<std::size_t>(size_ - 1)][place(targets_[next_].combination)] == Status::missing;
  if (still_missing) reject("no row came out as planned");
  proposed_ = false;
}

void CoveringArray::reject(const std::string& reason) {
  if (!proposed_) throw std::logic_error("there is no proposal to reject");
  proposed_ = false;
  Target& target = targets_[next_];
  if (++target.refusals < kRefusals) {
    // Others first: what they bring may cover it.
    std::swap(target, targets_[next_ + below(targets_.size() - next_)]);
    return;
  }
  status_[static_cast<std::size_t>(size_ - 1)][place(target.combination)] = Status::hopeless;
  Forbidden rule{{}, reason};
  for (std::size_t n = 0; n < target.combination.factors.size(); ++n) {
    rule.all.emplace_back(target.combination.factors[n], bit(target.combination.values[n]));
  }
  forbidden_.push_back(std::move(rule));
}

void CoveringArray::forbid(int factor, int value, const std::string& reason) {
  forbidden_.push_back({{{factor, bit(value)}}, reason});
}

std::vector<Unreached> CoveringArray::unreached() const {
  std::vector<Unreached> all;
  for_each_combination(strength_, [&](const Combination& combination) {
    if (status_.back()[place(combination)] == Status::covered) return;
    const Forbidden* rule = broken_rule(combination);
    const bool given = rule != nullptr && static_cast<std::size_t>(rule - forbidden_.data()) < rules_given_;
    all.push_back({combination, rule == nullptr ? "" : rule->reason, given});
  });
  return all;
}

std::int64_t CoveringArray::combinations() const {
  std::int64_t total = 0;
  for_each_choice(static_cast<int>(counts_.size()), strength_, [&](const std::vector<int>& factors) {
    std::int64_t product = 1;
    for (const int factor : factors) product *= counts_[static_cast<std::size_t>(factor)];
    total += product;
  });
  return total;
}

}  // namespace attest

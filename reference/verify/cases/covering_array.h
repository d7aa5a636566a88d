// SPDX-License-Identifier: Apache-2.0
// Covering arrays: few rows in which every combination of the values of any `strength` factors appears. Rows are made one
// at a time, greedily, each around a combination that is still missing; whoever asks for a row says whether it could be
// had, so that combinations that nobody can run end as unreached, with the reason, instead of stopping the rest.
//
//   CoveringArray array({2, 3, 2}, {}, 2, seed);
//   while (const auto row = array.propose()) array.accept(*row);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace attest {

/// The value of each factor, by index; kNoValue where it has none of the listed ones.
using FactorValues = std::vector<int>;
inline constexpr int kNoValue = -1;

/// Values that cannot appear together: `all` names factors, each with the set of its values (bit n: value n).
struct Forbidden {
  std::vector<std::pair<int, std::uint64_t>> all;
  std::string reason;
};

/// A combination of values: factors, rising, and the value of each.
struct Combination {
  std::vector<int> factors;
  std::vector<int> values;
  bool operator==(const Combination&) const = default;
};

struct Unreached {
  Combination combination;
  std::string reason;     // empty: nothing speaks against it
  bool excluded = false;  // by a rule that was given, so that no row can have it
};

class CoveringArray {
 public:
  /// `counts`: values of each factor, at most 64. Strength 1 to 3: single values come first, then pairs, then triples.
  CoveringArray(std::vector<int> counts, std::vector<Forbidden> forbidden, int strength, std::uint64_t seed);

  /// What the other factors get, as far as rules allow, where a combination was refused several times among chosen values.
  void set_plain(FactorValues row) { plain_ = std::move(row); }
  /// No row may have this value from now on.
  void forbid(int factor, int value, const std::string& reason);

  /// A row that obeys the rules and has a combination that is still missing; nothing where none is left.
  std::optional<FactorValues> propose();
  /// A row that is in the list: the proposed one, or what became of it.
  void accept(const FactorValues& row);
  /// The proposed row could not be had. A combination that is refused several times is given up, for `reason`.
  void reject(const std::string& reason);

  /// Combinations of `strength` that are in no accepted row, in the order of their factors.
  std::vector<Unreached> unreached() const;
  std::int64_t combinations() const;  // of `strength`, all that can be written down
  std::int64_t covered() const { return covered_; }

 private:
  using Domains = std::vector<std::uint64_t>;  // by factor: the values that are left

  Domains all_values() const;
  /// Takes away what the rules do not leave; the rule that leaves nothing, or null.
  const Forbidden* broken_rule(Domains& domains) const;
  const Forbidden* broken_rule(const Combination& combination) const;
  std::optional<FactorValues> fill(const Combination& around, bool plainly, std::string& reason);
  template <typename Visit>
  void for_each_combination(int size, Visit visit) const;
  std::int64_t gain(const FactorValues& row, int factor, int value) const;
  std::size_t place(const Combination& combination) const;
  void list_targets(int size);
  std::uint64_t below(std::uint64_t n);

  enum class Status : std::uint8_t { missing, covered, hopeless };
  struct Target {
    Combination combination;
    int refusals = 0;
  };

  std::vector<int> counts_;
  std::vector<int> first_id_;  // by factor: the number of its first value among all values
  int values_ = 0;             // of all factors together
  std::vector<Forbidden> forbidden_;  // the rules given, then combinations that were given up
  std::size_t rules_given_ = 0;
  int strength_;
  std::uint64_t seed_;
  FactorValues plain_;
  std::uint64_t draws_ = 0;
  int size_ = 0;                            // of the combinations that are being covered
  std::vector<Target> targets_;             // in the order in which they are tried
  std::size_t next_ = 0;                    // target that the last proposal was made around
  bool proposed_ = false;                   // and its answer is still to come
  std::vector<std::vector<Status>> status_; // by size - 1, by place()
  std::int64_t covered_ = 0;
};

}  // namespace attest

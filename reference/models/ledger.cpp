// SPDX-License-Identifier: Apache-2.0
#include "reference/models/ledger.h"

#include <algorithm>

#include "reference/problem/invalid_request.h"

namespace attest {

std::string_view name_of(Moved tensor) {
  constexpr std::array<std::string_view, kMovedCount> names = {"q",  "k",  "v",    "o",    "do",    "dq",     "dk",
                                                               "dv", "l",  "m",    "lse",  "delta", "s",      "p",
                                                               "dp", "ds", "bias", "mask", "kept",  "partial"};
  return names[static_cast<std::size_t>(tensor)];
}

Traffic PhaseCounts::total() const {
  Traffic sum;
  for (const Traffic& one : slow) sum.reads += one.reads, sum.writes += one.writes;
  return sum;
}

void Ledger::phase(std::string_view name) {
  if (phases_[current_].name == name) return;
  const auto found =
      std::find_if(phases_.begin(), phases_.end(), [name](const PhaseCounts& x) { return x.name == name; });
  current_ = static_cast<std::size_t>(found - phases_.begin());
  if (found == phases_.end()) phases_.push_back({std::string(name), {}, {}, 0, 0});
}

void Ledger::matmul(std::int64_t m, std::int64_t n, std::int64_t k) {
  PhaseCounts& counts = phases_[current_];
  counts.matmul_flops += 2 * m * n * k;
  counts.fast.reads += m * k + k * n;
  counts.fast.writes += m * n;
}

void Ledger::elementwise(std::int64_t elements, std::int64_t flops) {
  PhaseCounts& counts = phases_[current_];
  counts.other_flops += flops;
  counts.fast.reads += elements;
  counts.fast.writes += elements;
}

Ledger::Held Ledger::hold(std::int64_t elements) {
  if (capacity_ > 0 && held_ + elements > capacity_)
    throw InvalidRequest("fast memory", std::to_string(held_ + elements) + " elements of tiles",
                         "at most " + std::to_string(capacity_) + " fit; use smaller tiles");
  held_ += elements;
  peak_ = std::max(peak_, held_);
  return Held(*this, elements);
}

Traffic Ledger::total() const {
  Traffic sum;
  for (const PhaseCounts& one : phases_) sum.reads += one.total().reads, sum.writes += one.total().writes;
  return sum;
}

std::int64_t Ledger::bytes(int element_bytes) const {
  std::int64_t sum = 0;
  for (const PhaseCounts& one : phases_)
    for (std::size_t tensor = 0; tensor < kMovedCount; ++tensor) {
      const bool byte =
          tensor == static_cast<std::size_t>(Moved::kept) || tensor == static_cast<std::size_t>(Moved::mask);
      sum += (one.slow[tensor].reads + one.slow[tensor].writes) * (byte ? 1 : element_bytes);
    }
  return sum;
}

std::int64_t Ledger::matmul_flops() const {
  std::int64_t sum = 0;
  for (const PhaseCounts& one : phases_) sum += one.matmul_flops;
  return sum;
}

std::int64_t Ledger::other_flops() const {
  std::int64_t sum = 0;
  for (const PhaseCounts& one : phases_) sum += one.other_flops;
  return sum;
}

void Ledger::add(const Ledger& other, std::int64_t times) {
  for (const PhaseCounts& from : other.phases_) {
    phase(from.name);
    PhaseCounts& to = phases_[current_];
    for (std::size_t tensor = 0; tensor < kMovedCount; ++tensor) {
      to.slow[tensor].reads += times * from.slow[tensor].reads;
      to.slow[tensor].writes += times * from.slow[tensor].writes;
    }
    to.fast.reads += times * from.fast.reads;
    to.fast.writes += times * from.fast.writes;
    to.matmul_flops += times * from.matmul_flops;
    to.other_flops += times * from.other_flops;
  }
  peak_ = std::max(peak_, other.peak_);
  kept_ += times * other.kept_;
}

}  // namespace attest

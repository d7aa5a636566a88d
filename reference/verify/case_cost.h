// SPDX-License-Identifier: Apache-2.0
// What a case has cost, phase by phase: time on the clock, and processor time of the thread that works on the case. Time
// on the clock alone has what other processes take from it, and the kernel's own process.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace attest {

/// In the order in which a case goes through them. `checks` is all checks beside the values, their kernel runs included.
enum class Phase : std::uint8_t { generate, inputs, oracle, bounds, run, judge, checks, explain, shrink };
inline constexpr std::array<Phase, 9> kPhases = {Phase::generate, Phase::inputs, Phase::oracle,  Phase::bounds, Phase::run,
                                                 Phase::judge,    Phase::checks, Phase::explain, Phase::shrink};
std::string_view name_of(Phase phase);

struct Cost {
  double seconds = 0;  // on the clock
  double cpu = 0;      // seconds of the calling thread; threads that it starts are not counted
  void add(const Cost& other) {
    seconds += other.seconds;
    cpu += other.cpu;
  }
};

struct CaseCost {
  std::array<Cost, kPhases.size()> phases;
  Cost& operator[](Phase phase) { return phases[static_cast<std::size_t>(phase)]; }
  const Cost& operator[](Phase phase) const { return phases[static_cast<std::size_t>(phase)]; }
};

/// Adds the time of its own life to `cost`.
class CostClock {
 public:
  explicit CostClock(Cost& cost);
  ~CostClock();
  CostClock(const CostClock&) = delete;
  CostClock& operator=(const CostClock&) = delete;

 private:
  Cost& cost_;
  Cost start_;
};

}  // namespace attest

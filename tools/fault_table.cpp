// SPDX-License-Identifier: Apache-2.0
// Prints which acceptance rule sees which fault on N(0, 1) inputs, the table of docs/numerics.md: x seen, . not seen, first
// in f16, then in bf16.
//
//   attest_fault_table
#include <array>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>

#include "tests/support/fault_study.h"

namespace {

using namespace attest::tiled_faults;

constexpr std::array<const char*, 2> kTypes = {"f16", "bf16"};
constexpr std::array<bool RuleVerdicts::*, 5> kRules = {&RuleVerdicts::torch, &RuleVerdicts::loose, &RuleVerdicts::flash,
                                                        &RuleVerdicts::nmse, &RuleVerdicts::bound};

using Counts = std::array<std::array<int, 2>, 5>;

std::array<RuleVerdicts, 2> verdicts_on(Fault fault) {
  static std::map<std::string, FaultStudy> studies;
  std::array<RuleVerdicts, 2> verdicts;
  for (std::size_t type = 0; type < 2; ++type) {
    const std::string text = case_for(fault, kTypes[type]);
    verdicts[type] = studies.try_emplace(text, text).first->second.judge(fault);
  }
  return verdicts;
}

void print_line(std::string_view name, Fault fault, Counts& seen) {
  const std::array<RuleVerdicts, 2> verdicts = verdicts_on(fault);
  std::printf("| %.*s |", static_cast<int>(name.size()), name.data());
  for (std::size_t rule = 0; rule < kRules.size(); ++rule) {
    for (std::size_t type = 0; type < 2; ++type) {
      const bool rejects = verdicts[type].*kRules[rule];
      seen[rule][type] += rejects;
      std::printf(" %s", rejects ? "x" : ".");
    }
    std::printf(" |");
  }
  std::printf(" %.2g %s, %.2g %s |\n", verdicts[0].score, verdicts[0].tensor.c_str(), verdicts[1].score,
              verdicts[1].tensor.c_str());
}

}  // namespace

int main() {
  Counts seen = {}, correct = {};
  std::printf("| fault | torch default | 1e-2 | FA 2x | NMSE | bound | largest score |\n|---|---|---|---|---|---|---|\n");
  print_line("none: a correct kernel", Fault::none, correct);
  for (const FaultName& fault : faults()) print_line(fault.name, fault.fault, seen);
  std::printf("| seen, of %zu |", faults().size());
  for (const auto& counts : seen) std::printf(" %d, %d |", counts[0], counts[1]);
  std::printf(" |\n");
}

// SPDX-License-Identifier: Apache-2.0
// How often the diagnosis names the true cause first: random problems with one planted mistake each, and as many without.
//
//   attest_diagnosis_study --cases 500 --seed 1
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "reference/problem/case_text.h"
#include "tests/support/diagnosis_study.h"

int main(int argc, char** argv) {
  using namespace attest;
  using namespace attest::testing_support;
  std::int64_t wanted = 500;
  std::uint64_t seed = 1;
  bool verbose = false;
  CLI::App app{"Confusion table of the diagnosis over random planted mistakes"};
  app.add_option("--cases", wanted, "cases whose mistake shows");
  app.add_option("--seed", seed, "seed of the cases");
  app.add_flag("--verbose", verbose, "print each case that is not named");
  CLI11_PARSE(app, argc, argv);
  std::map<std::string, std::map<std::string, int>> table;
  std::int64_t named = 0, judged = 0, hidden = 0, correct = 0, accused = 0;
  for (std::uint64_t index = 0; judged < wanted; ++index) {
    const Problem problem = random_problem(seed, index);
    const Fault fault = random_fault(problem, seed, index);
    const diagnose::Explanation found = diagnose_fault(problem, fault);
    if (index % 4 == 0) {
      ++correct;
      accused += !diagnose_fault(problem, Fault{}).causes().empty();
    }
    if (found.as_contracted()) {
      ++hidden;
      continue;
    }
    ++judged;
    const std::string first = first_name(found, fault.cause);
    ++table[fault.cause][first];
    named += first == fault.cause;
    if (verbose && first != fault.cause) {
      fmt::print("{} {} of {} where {}: {} | {}\n", fault.cause, fault.number, fault.tile, static_cast<int>(fault.where), first, print_case(problem));
      for (std::size_t n = 0; n < std::min<std::size_t>(3, found.ranking.size()); ++n) {
        const auto& c = found.ranking[n];
        fmt::print("    {} ({}): misfit {:.3g} of {:.3g}", found.name_of(c), name_of(c.scope), c.fit.misfit(), found.contract.misfit());
        for (const auto& t : c.fit.tensors) fmt::print(" {} {}/{}", t.tensor, t.explained, t.total);
        fmt::print("\n");
      }
    }
    std::fflush(stdout);
  }
  fmt::print("{} cases, true cause first in {} ({:.1f} %); {} more whose mistake stays within the bounds; {} right results, {} accused\n\n",
             judged, named, 100.0 * static_cast<double>(named) / static_cast<double>(judged), hidden, correct, accused);
  fmt::print("| planted | cases | named first | instead |\n|---|---|---|---|\n");
  for (const auto& [cause, firsts] : table) {
    int all = 0, right = 0;
    std::string others;
    for (const auto& [first, count] : firsts) {
      all += count;
      if (first == cause) {
        right = count;
      } else {
        others += fmt::format("{}{} {}", others.empty() ? "" : ", ", count, first);
      }
    }
    fmt::print("| {} | {} | {} | {} |\n", cause, all, right, others);
  }
  return 0;
}

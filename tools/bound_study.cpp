// SPDX-License-Identifier: Apache-2.0
// Runs the built-in kernels on random cases and prints how close they come to their bounds, by type, mode and tensor. A
// correct kernel never passes 1.
//
//   attest_bound_study [cases] [first seed] [longest sequence]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>

#include "reference/models/builtin_kernels.h"
#include "reference/problem/case_text.h"
#include "reference/problem/invalid_request.h"
#include "tests/support/bound_study.h"

namespace {

using namespace attest;

struct Line {
  std::vector<float> worst;    // of each case
  std::vector<float> medians;  // of each case
};

void add(const Ratios& ratios, Line& line) {
  if (ratios.empty()) return;
  Ratios sorted = ratios;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2), sorted.end());
  line.medians.push_back(sorted[sorted.size() / 2]);
  line.worst.push_back(*std::max_element(ratios.begin(), ratios.end()));
}

float median(std::vector<float> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int count, char** arguments) {
  const std::int64_t cases = count > 1 ? std::atoll(arguments[1]) : 2000;
  const std::uint64_t first = count > 2 ? static_cast<std::uint64_t>(std::atoll(arguments[2])) : 1;
  const std::int64_t longest = count > 3 ? std::atoll(arguments[3]) : 150;
  std::map<std::tuple<std::string, std::string, int>, Line> lines;
  std::int64_t ran = 0, beyond = 0, elements = 0, unspecified = 0;
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t n = 0; n < cases; ++n) {
    const Problem problem = study_problem(first + static_cast<std::uint64_t>(n), longest);
    try {
      validate(problem);
    } catch (const InvalidRequest&) {
      continue;
    }
    for (const attest_kernel* kernel : builtin_cpu_kernels()) {
      const BoundMode mode = study_mode(problem);
      const StudiedCase studied = study(*kernel, problem, mode);
#pragma omp critical
      {
        ran += studied.error.empty();
        elements += studied.elements;
        unspecified += studied.unspecified;
        for (int tensor = 0; tensor < 6; ++tensor) {
          const Ratios& ratios = studied.ratios[static_cast<std::size_t>(tensor)];
          add(ratios, lines[{std::string(name_of(problem.dtype)), mode == BoundMode::gen ? "gen" : "det", tensor}]);
          if (ratios.empty() || !(*std::max_element(ratios.begin(), ratios.end()) > 1)) continue;
          ++beyond;
          std::printf("BEYOND %s %s %.3g: %s\n", kernel->name, kStudied[static_cast<std::size_t>(tensor)],
                      *std::max_element(ratios.begin(), ratios.end()), print_case(problem).c_str());
        }
      }
    }
  }
  std::printf("%-8s %-4s %-7s %6s %8s %8s %8s\n", "type", "mode", "tensor", "cases", "max", "typical", "median");
  for (const auto& [key, line] : lines) {
    if (line.worst.empty()) continue;
    std::printf("%-8s %-4s %-7s %6zu %8.3f %8.3f %8.4f\n", std::get<0>(key).c_str(), std::get<1>(key).c_str(),
                kStudied[static_cast<std::size_t>(std::get<2>(key))], line.worst.size(),
                *std::max_element(line.worst.begin(), line.worst.end()), median(line.worst), median(line.medians));
  }
  std::printf("%lld runs, %lld elements, %.3f%% unspecified, %lld tensors beyond 1\n", static_cast<long long>(ran),
              static_cast<long long>(elements), 100.0 * static_cast<double>(unspecified) / static_cast<double>(elements),
              static_cast<long long>(beyond));
  return beyond == 0 ? 0 : 1;
}

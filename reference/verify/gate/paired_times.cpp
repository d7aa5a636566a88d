// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/gate/paired_times.h"

#include <algorithm>
#include <cmath>

namespace attest {
namespace {

constexpr double kLeastDifference = 0.05;
constexpr double kTimesTheNoise = 3;

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string judge_times(const std::vector<PairedLogRatios>& cases, double& ratio, double& noise) {
  std::vector<double> medians;
  std::vector<double> deviations;
  for (const PairedLogRatios& pairs : cases) {
    const double middle = median(pairs);
    medians.push_back(middle);
    for (const double value : pairs) deviations.push_back(std::abs(value - middle));
  }
  const double middle = median(medians);
  noise = deviations.empty() ? 0 : median(deviations) / std::sqrt(static_cast<double>(deviations.size()));
  ratio = std::exp(middle);
  if (cases.empty() || std::abs(middle) < std::log1p(kLeastDifference) || std::abs(middle) < kTimesTheNoise * noise) return "no difference";
  return middle > 0 ? "slower" : "faster";
}

}  // namespace attest

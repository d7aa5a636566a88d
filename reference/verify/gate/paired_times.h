// SPDX-License-Identifier: Apache-2.0
// Whether one kernel is slower than another, from times that were taken in turn.
#pragma once

#include <string>
#include <vector>

namespace attest {

double median(std::vector<double> values);

/// Log ratios of times, candidate over baseline, of one case: pairs taken in turn.
using PairedLogRatios = std::vector<double>;

/// "slower", "faster" or "no difference": the median over the cases of their medians has to pass 5 percent and three times
/// the noise, the median absolute deviation of the pairs about the median of their case, by the root of the pairs.
std::string judge_times(const std::vector<PairedLogRatios>& cases, double& ratio, double& noise);

}  // namespace attest

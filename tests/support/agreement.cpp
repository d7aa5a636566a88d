// SPDX-License-Identifier: Apache-2.0
#include "tests/support/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace attest {
namespace {

/// exp in double is gone below e^-745; what it multiplies stays below 1e115 for every type but f64.
constexpr double kUnderflow = 1e-200;

bool same_class(double got, double want) {
  if (std::isfinite(got) && std::isfinite(want)) return true;
  return got == want || (std::isnan(got) && std::isnan(want));
}

bool agrees(double got, double want, double magnitude, double tolerance) {
  if (!same_class(got, want)) return false;
  if (!std::isfinite(want)) return true;
  if (magnitude == 0) return got == want;
  return std::abs(got - want) <= tolerance * magnitude + kUnderflow;
}

std::string compare(const char* name, const std::vector<double>& got, const std::vector<double>& want,
                    const std::vector<double>& magnitude, double tolerance) {
  if (got.size() != want.size()) return fmt::format("{} has {} elements instead of {}", name, got.size(), want.size());
  for (std::size_t n = 0; n < want.size(); ++n) {
    if (agrees(got[n], want[n], magnitude[n], tolerance)) continue;
    return fmt::format("{}[{}] of {}: got {:.17g}, want {:.17g}, off by {:.3g} where {:.3g} of {:.3g} is allowed", name,
                       n, want.size(), got[n], want[n], std::abs(got[n] - want[n]), tolerance, magnitude[n]);
  }
  return "";
}

}  // namespace

std::string first_disagreement(const Exact& got, const slow::Result& want) {
  const double tolerance = kAgreement * std::max(1.0, want.score_magnitude / 16);
  const Exact &value = want.value, &size = want.magnitude;
  for (const std::string& found :
       {compare("o", got.o.data, value.o.data, size.o.data, tolerance),
        compare("lse", got.lse, value.lse, size.lse, tolerance),
        compare("dq", got.dq.data, value.dq.data, size.dq.data, tolerance),
        compare("dk", got.dk.data, value.dk.data, size.dk.data, tolerance),
        compare("dv", got.dv.data, value.dv.data, size.dv.data, tolerance),
        compare("d_bias", got.d_bias.data, value.d_bias.data, size.d_bias.data, tolerance)}) {
    if (!found.empty()) return found;
  }
  return "";
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
#include "tools/other_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attest::tools {
namespace {

struct Tolerances {
  double relative, absolute;
};

/// Defaults of torch.testing.assert_close; it has none for 8-bit types, whose outputs are wider anyway.
Tolerances torch_default(Dtype type) {
  switch (type) {
    case Dtype::f64: return {1e-7, 1e-7};
    case Dtype::f32: return {1.3e-6, 1e-5};
    case Dtype::f16: return {1e-3, 1e-5};
    default: return {1.6e-2, 1e-5};
  }
}

using Numbers = std::vector<double>;

/// The exact value as the output type stores it, which is what the tensors of those suites hold.
bool all_close(const Numbers& want, const Numbers& got, Dtype type) {
  const auto [relative, absolute] = torch_default(type);
  for (std::size_t at = 0; at < want.size(); ++at) {
    const double w = round_to(type, want[at]);
    if (w == got[at]) continue;
    if (!std::isfinite(w) || !std::isfinite(got[at]) || !(std::abs(got[at] - w) <= absolute + relative * std::abs(w)))
      return false;  // NaN never equals NaN by default
  }
  return true;
}

/// As a maximum over a tensor there: NaN if any element is.
double largest_error(const Numbers& want, const Numbers& got) {
  double largest = 0;
  for (std::size_t at = 0; at < want.size(); ++at) {
    const double error = std::abs(got[at] - want[at]);
    if (std::isnan(error)) return error;
    largest = std::max(largest, error);
  }
  return largest;
}

bool twice_the_baseline(const Numbers& want, const Numbers& got, const Numbers& baseline) {
  return largest_error(want, got) <= 2 * largest_error(want, baseline);
}

bool small_mean_square(const Numbers& want, const Numbers& got) {
  double error = 0, size = 0;
  for (std::size_t at = 0; at < want.size(); ++at) {
    error += (got[at] - want[at]) * (got[at] - want[at]);
    size += want[at] * want[at];
  }
  return error == 0 || error / size <= 5e-4;
}

}  // namespace

bool accepts(Rule rule, const Problem& problem, const Exact& want, const Outputs& got, const Outputs& baseline,
             std::string& why) {
  const auto passes = [&](const char* name, const Numbers& w, const Numbers& g, const Numbers& b, Dtype type) {
    const bool ok = rule == Rule::allclose ? all_close(w, g, type)
                    : rule == Rule::fa2x   ? twice_the_baseline(w, g, b)
                                           : small_mean_square(w, g);
    if (!ok) why.append(why.empty() ? "" : " ").append(name);
    return ok;
  };
  bool ok = true;
  const Dtype out = problem.output_dtype();
  if (problem.wants_forward()) {
    ok &= passes("o", want.o.data, got.o.data, baseline.o.data, out);
    if (rule == Rule::allclose) ok &= passes("lse", want.lse, got.lse, baseline.lse, problem.lse_dtype());
  }
  if (problem.wants_backward()) {
    ok &= passes("dq", want.dq.data, got.dq.data, baseline.dq.data, out);
    ok &= passes("dk", want.dk.data, got.dk.data, baseline.dk.data, out);
    ok &= passes("dv", want.dv.data, got.dv.data, baseline.dv.data, out);
    if (problem.d_bias)
      ok &= passes("dbias", want.d_bias.data, got.d_bias.data, baseline.d_bias.data, problem.lse_dtype());
  }
  return ok;
}

}  // namespace attest::tools

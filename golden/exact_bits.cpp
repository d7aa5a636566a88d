// SPDX-License-Identifier: Apache-2.0
#include "golden/exact_bits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>

#include "golden/case_tensors.h"
#include "golden/profile.h"
#include "reference/oracle/closed_form.h"
#include "reference/problem/invalid_request.h"

namespace attest::golden {
namespace {

constexpr double kFlushed = 0x1p-125;  // a bound of this much only allows for float32 subnormals that are flushed

bool is_gradient(const std::string& output) { return output != "o" && output != "lse"; }

/// Whether every kernel that computes in float32 within `bound` of `want` gives `want` once it has rounded to `type`.
bool survives_float32(Dtype type, double want, double bound) {
  if (want == 0 && bound <= kFlushed) return true;
  return round_to(type, want - bound) == want && round_to(type, want + bound) == want;
}

/// Worst-case bounds of float32 throughout, before the last rounding to the output type.
Bounds float32_bounds(const GoldenCase& golden) {
  Problem fine = golden.problem;
  fine.out_dtype = Dtype::f32;
  const NumericsProfile numerics = make_profile(numerics_preset("f32-simt"), fine);
  return error_bounds(fine, golden.inputs, golden.exact, numerics, BoundMode::det, BoundArithmetic::in_double);
}

void mark_named(GoldenCase& golden) {
  const std::vector<std::string> names = output_names(golden.problem);
  const Dtype type = golden.problem.output_dtype();
  Bounds fine = golden.exact_tensors.empty() ? Bounds{} : float32_bounds(golden);
  for (const std::string& name : golden.exact_tensors) {
    if (std::find(names.begin(), names.end(), name) == names.end() || name == "lse") {
      throw InvalidRequest("exact", name, "outputs of the case: o dq dk dv dbias");
    }
    const std::vector<double>& exact = output_values(golden.exact, name);
    const std::vector<double>& loose = output_values(fine, name);
    for (std::size_t n = 0; n < exact.size(); ++n) {
      if (round_to(type, exact[n]) != exact[n]) {
        throw InvalidRequest("exact", fmt::format("{} with {}", name, exact[n]),
                             fmt::format("values that {} holds", name_of(type)));
      }
      if (is_gradient(name) && !survives_float32(type, exact[n], loose[n])) {
        throw InvalidRequest("exact", fmt::format("{} with {} at element {}", name, exact[n], n),
                             "gradients that float32 arithmetic, whose exp errs, gives to the last bit");
      }
    }
    std::vector<double>& bounds = output_values(golden.bounds, name);
    std::fill(bounds.begin(), bounds.end(), 0.0);
  }
}

void mark_family(GoldenCase& golden) {
  const Problem& p = golden.problem;
  if (family(p.fill.family).kind != FamilyKind::exact) return;
  ExactWithBounds closed{golden.exact, golden.bounds};
  NumericsProfile numerics = make_profile(numerics_preset(profile_of(p).preset), p);
  numerics.p_normalised =
      true;  // kernels that divide P before they round it pass too: no bits where 1 / n is not exact
  apply_closed_form(p, golden.inputs, numerics, closed);
  Bounds fine = float32_bounds(golden);
  // Powers of two other than 1 come from exp: o of these families is as inexact in float32 as gradients are.
  const bool ladder = p.fill.family == "exact-ladder" || p.fill.family == "exact-staircase";
  const Dtype type = p.output_dtype();
  // delta is that of the stored o.
  const bool o_is_stored = std::all_of(golden.exact.o.data.begin(), golden.exact.o.data.end(),
                                       [&](double x) { return round_to(type, x) == x; });
  for (const std::string& name : output_names(p)) {
    if (name == "lse" || (is_gradient(name) && !o_is_stored)) continue;
    const std::vector<double>& exact = output_values(golden.exact, name);
    const std::vector<double>& want = output_values(closed.exact, name);
    const std::vector<double>& claimed = output_values(closed.bounds, name);
    const std::vector<double>& loose = output_values(fine, name);
    std::vector<double>& bounds = output_values(golden.bounds, name);
    bool all = !exact.empty();
    for (std::size_t n = 0; n < exact.size(); ++n) {
      const bool known = claimed[n] == 0;
      if (known && round_to(type, exact[n]) != want[n]) {
        throw std::logic_error(fmt::format("{}: the closed form of {} is {} and the exact value {}", p.fill.family,
                                           name, want[n], exact[n]));
      }
      const bool bits = known && ((name == "o" && !ladder) || survives_float32(type, want[n], loose[n]));
      if (bits) bounds[n] = stored_bound(exact[n], std::abs(exact[n] - want[n]));
      all &= bits;
    }
    if (all) golden.exact_tensors.push_back(name);
  }
}

}  // namespace

bool is_bit_for_bit(Dtype type, double exact, double bound) {
  return round_to(type, exact - bound) == round_to(type, exact + bound);
}

void mark_exact_bits(GoldenCase& golden) {
  mark_named(golden);
  if (golden.exact_tensors.empty()) mark_family(golden);
}

}  // namespace attest::golden

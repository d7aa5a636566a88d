// SPDX-License-Identifier: Apache-2.0
#include "reference/oracle/bound_parts.h"

#include <algorithm>
#include <array>

namespace attest {
namespace {

constexpr double kNearlyNothing = 0x1p-20;

void shrink(StorageRounding& rounding) {
  rounding.u *= kNearlyNothing;
  rounding.subnormal *= kNearlyNothing;
  rounding.min_normal *= kNearlyNothing;
}

void shrink(Accumulation& sums) {
  sums.aligner *= kNearlyNothing;
  sums.u_norm *= kNearlyNothing;
  sums.u_wide *= kNearlyNothing;
}

struct Source {
  std::string_view name;
  void (*shrink)(NumericsProfile& profile);
};

constexpr std::array<Source, 6> kSources = {{
    {"rounding of P", [](NumericsProfile& n) { shrink(n.p), shrink(n.p_bwd); }},
    {"products", [](NumericsProfile& n) { shrink(n.qk), shrink(n.pv), shrink(n.bwd); }},
    {"registers", [](NumericsProfile& n) { n.u *= kNearlyNothing; }},
    {"functions", [](NumericsProfile& n) { n.exp_error *= kNearlyNothing, n.log_error *= kNearlyNothing, n.tanh_error *= kNearlyNothing; }},
    {"operands", [](NumericsProfile& n) { n.input_error *= kNearlyNothing; }},
    {"output", [](NumericsProfile& n) { shrink(n.out); }},
}};

}  // namespace

std::vector<std::vector<BoundPart>> bound_parts(const Problem& problem, const Inputs& inputs, const Exact& exact,
                                                const NumericsProfile& profile, BoundMode mode,
                                                const std::vector<BoundElement>& elements) {
  std::vector<std::vector<BoundPart>> parts(elements.size());
  for (const Source& kept : kSources) {
    if (kept.name == "operands" && profile.input_error == 0) continue;
    NumericsProfile alone = profile;
    for (const Source& other : kSources) {
      if (other.name != kept.name) other.shrink(alone);
    }
    const Bounds bounds = error_bounds(problem, inputs, exact, alone, mode);
    for (std::size_t n = 0; n < elements.size(); ++n) {
      if (const double bound = elements[n](bounds); bound > 0) parts[n].push_back({kept.name, bound});
    }
  }
  for (std::vector<BoundPart>& list : parts) {
    std::stable_sort(list.begin(), list.end(), [](const BoundPart& a, const BoundPart& b) { return a.alone > b.alone; });
  }
  return parts;
}

}  // namespace attest

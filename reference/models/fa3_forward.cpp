// SPDX-License-Identifier: Apache-2.0
// FlashAttention-3 (Shah et al. 2024), Algorithm 2: two stages in flight. The scores of tile j are made before the
// product of P and V of tile j - 1, and the output is rescaled only after that product. Every sum has the terms and
// the order of FA2, so the bits are FA2's as well. P in FP8 may take a scale of its own per tile.
#include <algorithm>
#include <utility>

#include "reference/models/forward_steps.h"
#include "reference/models/tiled_models.h"

namespace attest {
namespace {

template <typename Real>
void head_forward(ForwardSteps<Real>& steps) {
  const auto [head, br, bc, d, dv, ledger] = steps.loop();
  ledger.phase("forward");
  ScoreTile<Real> s_next(steps.options()), p_current(steps.options());
  StateRows<Real> rows(br, dv);
  for (std::int64_t i = 0; i < head.queries(); i += br) {
    const std::int64_t count = std::min(br, head.queries() - i);
    const auto held = ledger.hold(count * (d + dv + 2) + 2 * std::min(bc, head.keys()) * (d + dv + count));
    ledger.read(Moved::q, count * d);
    rows.reset(count);
    bool pending = false;  // a P whose product with V is still to come
    for (std::int64_t j = 0; j < head.keys(); j += bc) {
      s_next.tile = {i, count, j, std::min(bc, head.keys() - j)};
      if (!head.any_seen(s_next.tile)) continue;
      steps.load_keys(s_next.tile.cols);
      steps.scores(s_next);                                          // S_next = Q K_j^T
      if (pending) steps.multiply_values(p_current, rows.matrix());  // O = O + P_cur V_(j-1)
      steps.follow_maximum(s_next, rows);                            // m, and the rescale of l and O
      steps.exponentials(s_next, rows);                              // P_next, l
      std::swap(p_current, s_next);
      pending = true;
    }
    if (pending) steps.multiply_values(p_current, rows.matrix());
    steps.finish_rows(i, count, rows);
  }
  ledger.keep(head.queries());
}

}  // namespace

void fa3_forward(const attest_call& call, const ModelOptions& options) {
  for_each_head_of(call, options, [](auto& steps) { head_forward(steps); });
}

}  // namespace attest

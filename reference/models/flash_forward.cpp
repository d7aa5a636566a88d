// SPDX-License-Identifier: Apache-2.0
// FlashAttention-2 (Dao 2023), Algorithm 1: query tiles outer, key tiles inner, the output kept un-normalised until
// the end, only O and the logsumexp written. The rescale factor of line 10 is exp(m_old - m_new); the paper prints its
// inverse. With a rescale threshold this is FlashAttention-4's conditional rescale.
#include <algorithm>

#include "reference/models/flash.h"
#include "reference/models/forward_steps.h"

namespace attest {
namespace {

template <typename Real>
void head_forward(ForwardSteps<Real>& steps) {
  const auto [head, br, bc, d, dv, ledger] = steps.loop();
  ledger.phase("forward");
  ScoreTile<Real> s(steps.options());
  StateRows<Real> rows(br, dv);
  for (std::int64_t i = 0; i < head.queries(); i += br) {  // line 3
    const std::int64_t count = std::min(br, head.queries() - i);
    const auto held = ledger.hold(count * (d + dv + 2));  // Q_i, O_i, l_i, m_i
    ledger.read(Moved::q, count * d);                     // line 4
    rows.reset(count);                                    // line 5
    for (std::int64_t j = 0; j < head.keys(); j += bc) {  // line 6
      s.tile = {i, count, j, std::min(bc, head.keys() - j)};
      if (!head.any_seen(s.tile)) continue;
      const auto held_keys = ledger.hold(s.tile.cols * (d + dv + count));  // K_j, V_j, S_ij
      steps.load_keys(s.tile.cols);             // line 7
      steps.scores(s);                          // line 8
      steps.follow_maximum(s, rows);            // line 9: m, and the rescale of l; line 10: that of O
      steps.exponentials(s, rows);              // line 9: P, l
      steps.multiply_values(s, rows.matrix());  // line 10
    }
    steps.finish_rows(i, count, rows);  // lines 12 to 15
  }
  ledger.keep(head.queries());  // L
}

}  // namespace

void flash_forward(const attest_call& call, const ModelOptions& options) {
  for_each_head_of(call, options, [](auto& steps) { head_forward(steps); });
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// Rabe and Staats 2021: for a chunk of queries, every chunk of keys is summarised alone as its maximum, its sum of
// exponentials and its sum of weighted values; the summaries are kept, and merged once all are there. The defaults of
// the paper are chunks of 1024 queries and 4096 keys.
#include <algorithm>
#include <vector>

#include "reference/models/forward_steps.h"
#include "reference/models/tiled_models.h"

namespace attest {
namespace {

template <typename Real>
void head_forward(ForwardSteps<Real>& steps) {
  const auto [head, br, bc, d, dv, ledger] = steps.loop();
  const std::int64_t chunks = (head.keys() + bc - 1) / bc;
  ScoreTile<Real> s(steps.options());
  StateRows<Real> merged(br, dv);
  std::vector<StateRows<Real>> summaries;
  for (std::int64_t i = 0; i < head.queries(); i += br) {
    const std::int64_t count = std::min(br, head.queries() - i);
    summaries.clear();
    ledger.phase("chunks");
    ledger.read(Moved::q, count * d);
    std::int64_t summarised = 0;
    for (std::int64_t j = 0; j < head.keys(); j += bc) {
      s.tile = {i, count, j, std::min(bc, head.keys() - j)};
      if (!head.any_seen(s.tile)) continue;
      const auto held = ledger.hold(count * (d + dv + 2) + s.tile.cols * (d + dv + count));
      steps.load_keys(s.tile.cols);
      StateRows<Real> summary(ledger.counts_only() ? 0 : count, dv);
      steps.absorb(s, summary);  // exp(S - m_b) of the chunk's own m_b, its row sum, its product with V
      if (!ledger.counts_only()) summaries.push_back(std::move(summary));
      ledger.write(Moved::partial, count * (dv + 2));
      ++summarised;
    }
    ledger.phase("merge");
    const auto held = ledger.hold(2 * count * (dv + 2));
    ledger.read(Moved::partial, summarised * count * (dv + 2));
    ledger.elementwise(summarised * 2 * count * dv, summarised * count * (3 * dv + 6));
    merged.reset(ledger.counts_only() ? 0 : count);
    for (StateRows<Real>& summary : summaries)
      for (std::int64_t r = 0; r < count; ++r) merge(merged[r], summary[r]);
    steps.finish_rows(i, count, merged);
  }
  ledger.keep(std::min(br, head.queries()) * chunks * (dv + 2) + head.queries());
}

}  // namespace

void rabe_staats_forward(const attest_call& call, const ModelOptions& options) {
  for_each_head_of(call, options, [](auto& steps) { head_forward(steps); });
}

}  // namespace attest

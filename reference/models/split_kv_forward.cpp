// SPDX-License-Identifier: Apache-2.0
// Split keys (FlashDecoding, 2023): each part of the keys gives its own O and logsumexp, kept in slow memory; a second
// phase merges them. A part's result is the state (m, l, u) = (LSE, 1, O), so the merge is that of the state algebra;
// a part that a row does not see is the neutral element.
#include <algorithm>
#include <limits>
#include <vector>

#include "reference/models/forward_steps.h"
#include "reference/models/rounding.h"
#include "reference/models/tiled_models.h"

namespace attest {
namespace {

template <typename Real>
class SplitKvHead {
 public:
  explicit SplitKvHead(ForwardSteps<Real>& steps)
      : steps_(steps), head_(steps.head()), ledger_(steps.ledger()), s_(steps.options()),
        part_(steps.options().query_tile, head_.dim_v()), merged_(steps.options().query_tile, head_.dim_v()) {}

  void run() {
    const std::int64_t br = steps_.options().query_tile, bc = steps_.options().key_tile;
    const std::int64_t tiles = (head_.keys() + bc - 1) / bc;
    const std::int64_t splits = std::clamp<std::int64_t>(steps_.options().splits, 1, std::max<std::int64_t>(tiles, 1));
    const std::int64_t keys_per_split = (tiles + splits - 1) / splits * bc;
    for (std::int64_t i = 0; i < head_.queries(); i += br) {
      const std::int64_t count = std::min(br, head_.queries() - i);
      merged_.reset(count);
      for (std::int64_t first = 0; first < head_.keys(); first += keys_per_split) {
        one_part(i, count, first, std::min(first + keys_per_split, head_.keys()));
        merge_part(count);
      }
      ledger_.phase("merge");
      steps_.finish_rows(i, count, merged_);
    }
    ledger_.keep(head_.queries() * (splits * (head_.dim_v() + 1) + 1));
  }

 private:
  void one_part(std::int64_t i, std::int64_t count, std::int64_t first, std::int64_t last) {
    const std::int64_t bc = steps_.options().key_tile, d = head_.dim(), dv = head_.dim_v();
    ledger_.phase("parts");
    const auto held = ledger_.hold(count * (d + dv + 2));
    ledger_.read(Moved::q, count * d);
    part_.reset(count);
    for (std::int64_t j = first; j < last; j += bc) {
      s_.tile = {i, count, j, std::min(bc, last - j)};
      if (!head_.any_seen(s_.tile)) continue;
      const auto held_keys = ledger_.hold(s_.tile.cols * (d + dv + count));
      steps_.load_keys(s_.tile.cols);
      steps_.absorb(s_, part_);
    }
    ledger_.write(Moved::partial, count * (dv + 1));
  }

  void merge_part(std::int64_t count) {
    const std::int64_t dv = head_.dim_v();
    ledger_.phase("merge");
    const auto held = ledger_.hold(2 * count * (dv + 2));
    ledger_.read(Moved::partial, count * (dv + 1));
    ledger_.elementwise(2 * count * dv, count * (3 * dv + 6));
    if (ledger_.counts_only()) return;
    for (std::int64_t r = 0; r < count; ++r) {
      SoftmaxState<Real>& state = part_[r];
      const Real lse = finish(state);
      if (lse == -std::numeric_limits<Real>::infinity()) continue;
      round_all(steps_.options().o_between, state.u.data(), dv);
      state.m = lse;
      state.l = 1;
      merge(merged_[r], state);
    }
  }

  ForwardSteps<Real>& steps_;
  const Head<Real>& head_;
  Ledger& ledger_;
  ScoreTile<Real> s_;
  StateRows<Real> part_, merged_;
};

}  // namespace

void split_kv_forward(const attest_call& call, const ModelOptions& options) {
  for_each_head_of(call, options, []<typename Real>(ForwardSteps<Real>& steps) { SplitKvHead<Real>(steps).run(); });
}

}  // namespace attest

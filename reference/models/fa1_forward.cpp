// SPDX-License-Identifier: Apache-2.0
// FlashAttention (Dao et al. 2022), Algorithms 1 and 2: key tiles outer, query tiles inner. O, l and m rest in slow
// memory and are read and written at every step, O normalised each time: after tile j it is the exact attention over
// the keys so far (Theorem 1). Algorithm 5, block-sparse attention, is the same with hidden blocks left out.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "reference/models/fa1_observer.h"
#include "reference/models/forward_steps.h"
#include "reference/models/rounding.h"
#include "reference/models/tiled_models.h"

namespace attest {
namespace {

template <typename Real>
class Fa1Head {
 public:
  Fa1Head(ForwardSteps<Real>& steps, const Fa1Observer* observer)
      : steps_(steps), head_(steps.head()), ledger_(steps.ledger()), observer_(observer), s_(steps.options()),
        tile_(steps.options().query_tile, head_.dim_v()),
        rows_(ledger_.counts_only() ? 0 : head_.queries(), head_.dim_v()) {}

  void run() {
    const std::int64_t br = steps_.options().query_tile, bc = steps_.options().key_tile;
    const std::int64_t d = head_.dim(), dv = head_.dim_v(), sq = head_.queries();
    ledger_.phase("set up");
    ledger_.write(Moved::o, sq * dv);  // line 2: O = 0, l = 0, m = -inf
    ledger_.write(Moved::l, sq);
    ledger_.write(Moved::m, sq);
    ledger_.keep(2 * sq);
    ledger_.phase("forward");
    for (std::int64_t j = 0; j < head_.keys(); j += bc) {  // line 5
      const std::int64_t cols = std::min(bc, head_.keys() - j);
      const auto held_keys = ledger_.hold(cols * (d + dv));
      steps_.load_keys(cols);  // line 6
      for (std::int64_t i = 0; i < sq; i += br) {  // line 7
        s_.tile = {i, std::min(br, sq - i), j, cols};
        if (head_.any_seen(s_.tile)) inner_step();  // Algorithm 5: only where the block mask shows something
      }
      if (observer_ != nullptr && !ledger_.counts_only()) observe(j + cols);
    }
    if (!ledger_.counts_only()) write_results();
  }

 private:
  void inner_step() {
    const Tile& tile = s_.tile;
    const std::int64_t d = head_.dim(), dv = head_.dim_v();
    const auto held = ledger_.hold(tile.rows * (d + dv + 2 + tile.cols));  // Q_i, O_i, l_i, m_i, S_ij
    ledger_.read(Moved::q, tile.rows * d);                                 // line 8
    ledger_.read(Moved::o, tile.rows * dv);
    ledger_.read(Moved::l, tile.rows);
    ledger_.read(Moved::m, tile.rows);
    tile_.reset(ledger_.counts_only() ? 0 : tile.rows);
    steps_.scores(s_);                           // line 9
    steps_.follow_maximum(s_, tile_);            // line 10: m~ = rowmax S
    steps_.exponentials(s_, tile_);              //          P~ = exp(S - m~), l~ = rowsum P~
    steps_.multiply_values(s_, tile_.matrix());  //          P~ V
    merge_rows();                                // lines 11 and 12
    ledger_.write(Moved::o, tile.rows * dv);
    ledger_.write(Moved::l, tile.rows);  // line 13
    ledger_.write(Moved::m, tile.rows);
  }

  /// m' = max(m, m~); l' = e^(m - m') l + e^(m~ - m') l~; O = (l e^(m - m') O + e^(m~ - m') P~ V) / l'.
  void merge_rows() {
    const Tile& tile = s_.tile;
    ledger_.elementwise(2 * tile.rows * head_.dim_v(), tile.rows * (5 * head_.dim_v() + 7));
    if (ledger_.counts_only()) return;
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      SoftmaxState<Real>& state = rows_[tile.i + r];
      if (tile_[r].m == kNoKeys) continue;
      if (state.m != kNoKeys)
        for (Real& x : state.u) x *= state.l;  // O back to u
      merge(state, tile_[r]);
      for (Real& x : state.u) x /= state.l;
      round_all(steps_.options().o_between, state.u.data(), head_.dim_v());
    }
  }

  void observe(std::int64_t keys_seen) {
    std::vector<double> o;
    for (std::int64_t i = 0; i < head_.queries(); ++i) o.insert(o.end(), rows_[i].u.begin(), rows_[i].u.end());
    (*observer_)(keys_seen, o);
  }

  void write_results() {
    for (std::int64_t i = 0; i < head_.queries(); ++i)
      if (rows_[i].m != kNoKeys)
        for (Real& x : rows_[i].u) x *= rows_[i].l;  // finish_rows() divides again
    Ledger off_the_books;                            // O has been written by the last step
    ForwardSteps<Real>(head_, steps_.options(), off_the_books).finish_rows(0, head_.queries(), rows_);
  }

  static constexpr Real kNoKeys = -std::numeric_limits<Real>::infinity();
  ForwardSteps<Real>& steps_;
  const Head<Real>& head_;
  Ledger& ledger_;
  const Fa1Observer* observer_;
  ScoreTile<Real> s_;
  StateRows<Real> tile_;  // the states of one tile alone
  StateRows<Real> rows_;  // [Sq] in slow memory; u holds O, normalised
};

}  // namespace

void fa1_forward_observed(const attest_call& call, const ModelOptions& options, const Fa1Observer* observer) {
  for_each_head_of(call, options,
                   [observer]<typename Real>(ForwardSteps<Real>& steps) { Fa1Head<Real>(steps, observer).run(); });
}

void fa1_forward(const attest_call& call, const ModelOptions& options) { fa1_forward_observed(call, options, nullptr); }

}  // namespace attest

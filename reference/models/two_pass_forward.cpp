// SPDX-License-Identifier: Apache-2.0
// The plain two-pass softmax in tiles: a first pass over the keys finds m and l of every row, a second makes the scores
// again and multiplies the normalised P = exp(S - m) / l with V. Nothing is rescaled; K is read twice.
#include <algorithm>
#include <limits>

#include "reference/models/forward_steps.h"
#include "reference/models/tiled_models.h"

namespace attest {
namespace {

template <typename Real>
class TwoPassHead {
 public:
  explicit TwoPassHead(ForwardSteps<Real>& steps)
      : steps_(steps), head_(steps.head()), ledger_(steps.ledger()), s_(steps.options()),
        statistics_(steps.options().query_tile, 0), o_(steps.options().query_tile, head_.dim_v()) {}

  void run() {
    const std::int64_t br = steps_.options().query_tile;
    for (std::int64_t i = 0; i < head_.queries(); i += br) {
      const std::int64_t count = std::min(br, head_.queries() - i);
      const auto held = ledger_.hold(count * (head_.dim() + head_.dim_v() + 2));
      ledger_.phase("first pass");
      ledger_.read(Moved::q, count * head_.dim());
      statistics_.reset(count);
      o_.reset(count);
      for_each_tile(i, count, head_.dim(), [this] {
        steps_.follow_maximum(s_, statistics_);
        steps_.exponentials(s_, statistics_);
      });
      ledger_.phase("second pass");
      for_each_tile(i, count, head_.dim() + head_.dim_v(), [this] {
        ledger_.read(Moved::v, s_.tile.cols * head_.dim_v());
        normalised_p();
        steps_.multiply_values(s_, o_.matrix());
      });
      write_rows(i, count);
    }
    ledger_.keep(head_.queries());
  }

 private:
  template <typename Body>
  void for_each_tile(std::int64_t i, std::int64_t count, std::int64_t width, const Body& body) {
    const std::int64_t bc = steps_.options().key_tile;
    for (std::int64_t j = 0; j < head_.keys(); j += bc) {
      s_.tile = {i, count, j, std::min(bc, head_.keys() - j)};
      if (!head_.any_seen(s_.tile)) continue;
      const auto held = ledger_.hold(s_.tile.cols * (width + count));
      ledger_.read(Moved::k, s_.tile.cols * head_.dim());
      steps_.scores(s_);
      body();
    }
  }

  void normalised_p() {
    const std::int64_t rows = s_.tile.rows, cols = s_.tile.cols;
    if (ledger_.counts_only()) {
      ledger_.elementwise(rows * cols, 4 * rows * cols);
      return;
    }
    std::vector<Real> l;  // exponentials() adds to l; the sums of the first pass stand
    for (std::int64_t r = 0; r < rows; ++r) l.push_back(statistics_[r].l);
    steps_.exponentials(s_, statistics_);
    ledger_.elementwise(0, rows * cols);
    for (std::int64_t r = 0; r < rows; ++r) {
      statistics_[r].l = l[static_cast<std::size_t>(r)];
      if (statistics_[r].m == -std::numeric_limits<Real>::infinity()) continue;
      for (std::int64_t c = 0; c < cols; ++c) s_.matrix().row(r)[c] /= statistics_[r].l;
    }
  }

  /// finish_rows() divides by l and adds its log to m: here l is 1 and m the logsumexp.
  void write_rows(std::int64_t i, std::int64_t count) {
    if (!ledger_.counts_only())
      for (std::int64_t r = 0; r < count; ++r) {
        o_[r].m = finish(statistics_[r]);
        o_[r].l = 1;
      }
    steps_.finish_rows(i, count, o_);
  }

  ForwardSteps<Real>& steps_;
  const Head<Real>& head_;
  Ledger& ledger_;
  ScoreTile<Real> s_;
  StateRows<Real> statistics_;  // m and l only
  StateRows<Real> o_;
};

}  // namespace

void two_pass_forward(const attest_call& call, const ModelOptions& options) {
  for_each_head_of(call, options, []<typename Real>(ForwardSteps<Real>& steps) { TwoPassHead<Real>(steps).run(); });
}

}  // namespace attest

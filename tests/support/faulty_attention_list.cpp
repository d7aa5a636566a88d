// SPDX-License-Identifier: Apache-2.0
// Which mistakes a problem has room for.
#include <algorithm>

#include "tests/support/faulty_attention.h"

namespace attest::testing_support {

std::vector<Fault> faults_for(const Problem& p) {
  std::vector<Fault> list;
  const auto add = [&](const char* cause, std::int64_t number = 0, std::int64_t tile = 0, Where where = Where::both) { list.push_back({cause, number, tile, where}); };
  const auto shorter = [](const std::vector<std::int64_t>& lengths, std::int64_t rows) {
    return std::any_of(lengths.begin(), lengths.end(), [rows](std::int64_t n) { return n < rows; });
  };
  const bool packed = p.layout == Layout::thd, equal = p.seq_q == p.seq_k;
  if (p.causal != Causal::none) {
    if (!equal) add(p.causal == Causal::top_left ? "causal-bottom-right" : "causal-top-left");
    for (const char* cause : {"causal-dropped", "causal-one-more", "causal-one-fewer"}) add(cause);
  } else {
    add("causal-added");
  }
  if (p.window) {
    if (p.window->left >= 0) add("window-left+1", 1);
    if (p.window->left > 0) add("window-left-1", -1);
    if (p.window->right >= 0) add("window-right+1", 1);
    if (p.window->right > 0) add("window-right-1", -1);
    add("window-ignored");
    if (!equal && p.causal == Causal::none) add("window-alignment");
  }
  if (p.mask) add("mask-ignored");
  if (p.block) add("block-ignored");
  if (!packed && (shorter(p.seq_q, p.rows_q()) || shorter(p.seq_k, p.rows_k())) && !p.mask && !p.bias && !p.block) {
    add("padding-side");
    add("lengths-ignored");
  }
  if (packed) {
    add("offsets-k+1", 1);
    add("offsets-k-1", -1);
    add("offsets-q+1", 1);
    add("offsets-q-1", -1);
    if (p.batch() > 1 && !p.mask && !p.bias && !p.block) add("sequences-merged");
  }
  if (p.heads_kv > 1) {
    if (p.group() > 1) add("heads-modulo");
    add("k-of-another-head");
    add("v-of-another-head");
  }
  const bool level = std::all_of(p.seq_k.begin(), p.seq_k.end(), [&](std::int64_t n) { return n == p.seq_k.front(); });
  if (p.batch() > 1 && level) add("v-of-another-sequence");
  const bool square = equal && p.rows_q() == p.rows_k() && p.heads_q == p.heads_kv;
  if (square) add("q-k-swapped");
  add("k-transposed");
  if (!packed && square && p.heads_q > 1 && !p.window && !p.mask && !p.block && !p.bias && !p.alibi && !p.dropout && p.softcap == 0) add("attends-over-heads");
  if (p.heads_q > 1) add("layout-flat-order");
  add("scale-1");
  add("scale-1/D");
  if (p.width_v() != p.dim) add("scale-1/sqrt(Dv)");
  if (p.scale) add("scale-default");
  add("scale-twice");
  add("log2e-missing");
  add("log2e-twice");
  if (p.softcap > 0) {
    add("softcap-before-scale");
    add("softcap-ignored");
  }
  if (p.alibi) {
    add("alibi-sign");
    add("alibi-ignored");
    if (!equal) add("alibi-top-left");
  }
  if (p.bias) {
    add("bias-ignored");
    if (p.bias->shape.head && p.heads_q > 1) add("bias-of-first-head");
    if (p.bias->shape.batch && p.batch() > 1) add("bias-of-first-sequence");
    if (p.bias->shape.query && p.bias->shape.key) add("bias-transposed");
  }
  for (const char* cause : {"lse-base-2", "lse-unscaled", "lse-max-unscaled", "lse-without-max"}) add(cause);
  if (p.causal != Causal::none || p.window || p.mask || p.block) {
    add("lse-unmasked");
    for (const char* cause : {"empty-lse-positive", "empty-row-nan", "empty-row-mean"}) add(cause, 0, 0, Where::forward);
  }
  if (p.dropout) {
    for (const char* cause : {"lse-after-dropout", "dropout-ignored", "dropout-unscaled", "dropout-scaled-twice", "dropout-keeps-p", "dropout-p-for-1-p",
                              "dropout-scale-1/p", "dropout-seed", "dropout-offset", "dropout-counter"}) {
      add(cause);
    }
    add("dropout-counter", 1);
    if (p.heads_q > 1) add("dropout-head");
  }
  for (const std::int64_t tile : {16, 32, 64}) {
    const std::int64_t last = (p.max_k() + tile - 1) / tile - 1;
    if (last < 1) break;
    for (const char* cause : {"last-tile-dropped", "last-tile-twice", "never-rescaled"}) add(cause, 0, tile, Where::forward);
    for (const char* cause : {"not-rescaled", "stale-k", "stale-v", "stale-kv"}) add(cause, std::min<std::int64_t>(last, 2), tile, Where::forward);
  }
  if (p.wants_backward()) {
    const auto backward = [&](const char* cause, std::int64_t number = 0) { add(cause, number, 0, Where::backward); };
    backward("delta-missing");
    backward("delta-of-another-row", 1);
    if (p.heads_q > 1) backward("delta-of-another-head");
    if (p.d_lse) backward("dlse-ignored");
    if (p.softcap > 0) backward("softcap-slope-missing");
    backward("dq-unscaled");
    backward("dk-unscaled");
    if (p.dropout) backward("dv-undropped");
    if (p.d_bias) {
      if ((!p.bias->shape.batch && p.batch() > 1) || (!p.bias->shape.head && p.heads_q > 1)) {
        backward("dbias-of-first");
        backward("dbias-of-last");
      }
      backward("dbias-scaled");
      if (p.softcap > 0) backward("dbias-in-softcap");
    }
    if (p.group() > 1) {
      backward("group-first-head");
      backward("group-last-head");
    }
  }
  return list;
}

const std::vector<std::string>& all_causes() {
  static const std::vector<std::string> names = [] {
    Problem all;
    all.seq_q = {40, 40};
    all.seq_k = {80, 80};
    std::vector<std::string> seen;
    const auto take = [&](const Problem& p) {
      for (const Fault& fault : faults_for(p)) {
        if (std::find(seen.begin(), seen.end(), fault.cause) == seen.end()) seen.push_back(fault.cause);
      }
    };
    all.heads_q = 4;
    all.heads_kv = 2;
    all.dim_v = 32;
    all.scale = 0.2;
    all.softcap = 5;
    all.alibi = true;
    all.bias = Bias{{true, true, true, true}, std::nullopt, 0};
    all.causal = Causal::bottom_right;
    all.window = Window{9, 3, Causal::none};
    all.mask = ExplicitMask{};
    all.block = BlockMask{16, 16, 0, 0, 0.5};
    all.dropout = Dropout{0.2, 3, 0};
    all.d_lse = true;
    all.d_bias = true;
    take(all);
    all.bias->shape.head = false;
    take(all);
    all.bias->shape.head = true;
    all.causal = Causal::top_left;
    take(all);
    all.causal = Causal::none;
    take(all);
    all = Problem{};
    all.layout = Layout::thd;
    all.seq_q = all.seq_k = {40, 50};
    all.heads_q = all.heads_kv = 2;
    take(all);
    all.layout = Layout::bshd;
    take(all);
    return seen;
  }();
  return names;
}

}  // namespace attest::testing_support

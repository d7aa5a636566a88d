// SPDX-License-Identifier: Apache-2.0
// Masks, lengths, offsets, heads, and rows read in the wrong place.
#include <algorithm>

#include <fmt/format.h>

#include "reference/diagnose/hypotheses.h"

namespace attest::diagnose {
namespace {

const char* causal_word(Causal causal) {
  return causal == Causal::top_left ? "top-left" : causal == Causal::bottom_right ? "bottom-right" : "none";
}

/// Causal as a window that lets each query see `more` keys more.
void move_diagonal(Reading& r, std::int64_t more) {
  Window window = r.problem.window.value_or(Window{});
  if (r.problem.causal != Causal::none) window.alignment = r.problem.causal;
  window.right = window.right < 0 ? more : std::min(window.right, more);
  r.problem.causal = Causal::none;
  r.problem.window = window;
}

/// One key more or fewer on one side of a window; the window's right end may pass below 0.
void add_window_steps(const Window& window, std::vector<Hypothesis>& list) {
  const auto step = [&](const char* side, std::int64_t by, std::function<void(Reading&)> change) {
    list.push_back({fmt::format("window-{}{:+}", side, by), "", fmt::format("attention with a window one key {} on the {}", by > 0 ? "wider" : "narrower", side),
                    "both ends of a window are inclusive", std::move(change)});
  };
  for (const std::int64_t by : {1, -1}) {
    if (window.left + by >= 0 && window.left >= 0) step("left", by, [by](Reading& r) { r.problem.window->left += by; });
    if (window.right + by >= 0 && window.right >= 0) step("right", by, [by](Reading& r) { r.problem.window->right += by; });
  }
}

}  // namespace

void add_mask_hypotheses(const Evidence& evidence, std::vector<Hypothesis>& list) {
  const Problem& p = evidence.problem;
  const auto add = [&](const char* name, std::string says, const char* fix, std::function<void(Reading&)> change) {
    list.push_back({name, "", std::move(says), fix, std::move(change)});
  };
  if (p.causal != Causal::none) {
    const Causal other = p.causal == Causal::top_left ? Causal::bottom_right : Causal::top_left;
    if (p.seq_q != p.seq_k) {
      list.push_back({fmt::format("causal-{}", causal_word(other)), "", fmt::format("attention with causal {}; you asked for {}", causal_word(other), causal_word(p.causal)),
                      other == Causal::top_left ? "show j <= i + Sk - Sq" : "show j <= i", [other](Reading& r) { r.problem.causal = other; }});
    }
    add("causal-dropped", "attention without the causal mask", "hide j beyond the diagonal", [](Reading& r) {
      if (r.problem.window && r.problem.window->alignment == Causal::none) r.problem.window->alignment = r.problem.causal;
      r.problem.causal = Causal::none;
    });
    add("causal-one-more", "attention in which each query sees one key past the diagonal", "compare with <=, from i + s", [](Reading& r) { move_diagonal(r, 1); });
    add("causal-one-fewer", "attention in which no query sees the diagonal", "the diagonal is visible: j <= i + s", [](Reading& r) {
      r.causal_less = 1;
    });
  } else {
    add("causal-added", "attention with a causal mask that nobody asked for", "leave the mask off", [](Reading& r) {
      if (r.problem.window && r.problem.window->alignment == Causal::none) r.problem.window->alignment = Causal::bottom_right;
      move_diagonal(r, 0);
    });
  }
  if (p.window) {
    add_window_steps(*p.window, list);
    if (p.window->left >= 0 || p.window->right >= 0) {
      add("window-ignored", "attention without the window", "hide keys outside of it", [](Reading& r) { r.problem.window.reset(); });
    }
    if (p.seq_q != p.seq_k && p.causal == Causal::none) {
      add("window-alignment", "attention with the window aligned the other way", "take the window's alignment from the call", [](Reading& r) {
        r.problem.window->alignment = r.problem.window->alignment == Causal::top_left ? Causal::bottom_right : Causal::top_left;
      });
    }
  }
  if (p.mask) add("mask-ignored", "attention without the explicit mask", "hide where the mask is 0", [](Reading& r) { r.problem.mask.reset(); });
  if (p.block) add("block-ignored", "attention without the block mask", "skip tiles whose bit is 0", [](Reading& r) { r.problem.block.reset(); });
}

void add_place_hypotheses(const Evidence& evidence, std::vector<Hypothesis>& list) {
  const Problem& p = evidence.problem;
  const auto add = [&](const char* name, const char* says, const char* fix, std::function<void(Reading&)> change) {
    list.push_back({name, "", says, fix, std::move(change)});
  };
  const bool packed = p.layout == Layout::thd;
  const auto shorter = [](const std::vector<std::int64_t>& lengths, std::int64_t rows) {
    return std::any_of(lengths.begin(), lengths.end(), [rows](std::int64_t n) { return n < rows; });
  };
  if (!packed && (shorter(p.seq_q, p.rows_q()) || shorter(p.seq_k, p.rows_k()))) {
    add("padding-side", p.pad == PadSide::right ? "attention that takes right padding for left" : "attention that takes left padding for right",
        "find the first token of a sequence on the stated side", [](Reading& r) {
          r.problem.pad = r.problem.pad == PadSide::right ? PadSide::left : PadSide::right;
        });
    add("lengths-ignored", "attention over the padding too: the lengths are ignored", "hide j >= Sk[b]", [](Reading& r) {
      r.problem.seq_q.assign(r.problem.seq_q.size(), r.problem.rows_q());
      r.problem.seq_k.assign(r.problem.seq_k.size(), r.problem.rows_k());
    });
  }
  if (packed) {
    for (const std::int64_t by : {1, -1}) {
      list.push_back({fmt::format("offsets-k{:+}", by), "", fmt::format("attention with keys and values one row too {}", by > 0 ? "late" : "early"), "sequence b starts at row cu_k[b]",
                      [by](Reading& r) { r.shift_k = by; }});
      list.push_back({fmt::format("offsets-q{:+}", by), "", fmt::format("attention with queries one row too {}", by > 0 ? "late" : "early"), "sequence b starts at row cu_q[b]",
                      [by](Reading& r) { r.shift_q = by; }});
    }
    if (p.batch() > 1 && !p.mask && !p.block && !p.bias) {
      add("sequences-merged", "attention across the borders of packed sequences", "stop at cu_k[b + 1]", [](Reading& r) {
        r.problem.seq_q = {r.problem.total_q()};
        r.problem.seq_k = {r.problem.total_k()};
        r.merged = true;
      });
    }
  }
  if (p.heads_kv > 1) {
    if (p.group() > 1) add("heads-modulo", "attention in which head h reads key/value head h mod Hkv", "heads of a group lie next to each other: h / (Hq / Hkv)", [](Reading& r) { r.heads_modulo = true; });
    for (const std::int64_t step : {std::int64_t{1}, p.heads_kv - 1}) {
      const std::string detail = step == 1 ? "the next" : "the previous";
      list.push_back({"v-of-another-head", detail, fmt::format("attention with V of {} head", detail), "use one head index for k and v", [step](Reading& r) { r.v_head = step; }});
      list.push_back({"k-of-another-head", detail, fmt::format("attention with K of {} head", detail), "use one head index for k and v", [step](Reading& r) { r.k_head = step; }});
      if (p.heads_kv == 2) break;
    }
  }
  const bool equal_lengths = std::all_of(p.seq_k.begin(), p.seq_k.end(), [&](std::int64_t n) { return n == p.seq_k.front(); });
  if (p.batch() > 1 && equal_lengths) {
    for (const std::int64_t step : {std::int64_t{1}, p.batch() - 1}) {
      const char* which = step == 1 ? "the next" : "the previous";
      list.push_back({"v-of-another-sequence", which, fmt::format("attention with V of {} sequence", which), "use the batch stride of v", [step](Reading& r) { r.v_batch = step; }});
      if (p.batch() == 2) break;
    }
  }
  const bool square = p.seq_q == p.seq_k && p.rows_q() == p.rows_k() && p.heads_q == p.heads_kv;
  if (square) add("q-k-swapped", "attention with Q and K exchanged", "check the order of the arguments", [](Reading& r) { r.swap_qk = true; });
  if (p.dim > 1 && p.max_k() > 1) add("k-transposed", "attention with K of a head read as [D, Sk]", "K is [Sk, D]; check strides or the flag for transposition", [](Reading& r) { r.transpose_k = true; });
  if (!packed && square && p.heads_q > 1) {
    add("attends-over-heads", "attention over heads instead of tokens: sequence and heads are exchanged", "check the layout: bshd against bhsd", [](Reading& r) { r.heads_and_rows = HeadsAndRows::attend_over_heads; });
  }
  if (p.heads_q > 1) {
    add("layout-flat-order", packed ? "attention with [tokens, heads] rows read as [heads, tokens]" : p.layout == Layout::bshd ? "attention with bshd rows read as bhsd" : "attention with bhsd rows read as bshd",
        "check the layout: bshd against bhsd", [](Reading& r) { r.heads_and_rows = HeadsAndRows::flat_order; });
  }
}

}  // namespace attest::diagnose

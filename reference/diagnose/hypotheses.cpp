// SPDX-License-Identifier: Apache-2.0
// Scores, softmax, dropout and backward; masks and places are in hypotheses_places.cpp, tiles in hypotheses_tiles.cpp.
#include "reference/diagnose/hypotheses.h"

#include <cmath>

#include <fmt/format.h>

namespace attest::diagnose {

void add_score_hypotheses(const Evidence& evidence, std::vector<Hypothesis>& list) {
  const Problem& p = evidence.problem;
  const double scale = p.effective_scale();
  const double d = static_cast<double>(p.dim), dv = static_cast<double>(p.width_v());
  const auto scaled = [&](const char* name, double value, const std::string& says) {
    if (value == scale) return;
    list.push_back({name, "", says, fmt::format("multiply <q, k> by {:.6g}, once", scale),
                    [value](Reading& r) { r.problem.scale = value; }});
  };
  scaled("scale-1", 1, "attention without the scale (scale 1)");
  scaled("scale-1/D", 1 / d, "attention with scale 1/D instead of its root");
  if (dv != d) scaled("scale-1/sqrt(Dv)", 1 / std::sqrt(dv), "attention with scale 1/sqrt(Dv): the width of v, not of q and k");
  if (p.scale) scaled("scale-default", 1 / std::sqrt(d), "attention with scale 1/sqrt(D): the stated scale is ignored");
  scaled("scale-twice", scale * scale, "attention with the scale applied twice");
  list.push_back({"log2e-missing", "", "attention with exp2 of natural scores: log2(e) is missing",
                  "multiply the scores by log2(e) before exp2", [](Reading& r) { r.score_factor = 0.69314718055994530942; }});
  list.push_back({"log2e-twice", "", "attention with log2(e) applied twice", "multiply by log2(e) once",
                  [](Reading& r) { r.score_factor = 1.4426950408889634074; }});
  if (p.softcap > 0) {
    list.push_back({"softcap-before-scale", "", "attention with the softcap applied before the scale",
                    "scale <q, k> first, then cap", [](Reading& r) { r.cap_before_scale = true; }});
    list.push_back({"softcap-ignored", "", "attention without softcap", "apply cap * tanh(s / cap)",
                    [](Reading& r) { r.problem.softcap = 0; }});
  }
  if (p.alibi) {
    list.push_back({"alibi-sign", "", "attention with ALiBi of the other sign", "the bias is slope * -distance",
                    [](Reading& r) { r.alibi_sign = -1; }});
    list.push_back({"alibi-ignored", "", "attention without ALiBi", "add slope * -|i + Sk - Sq - j|",
                    [](Reading& r) { r.problem.alibi = false; }});
    if (p.seq_q != p.seq_k) {
      list.push_back({"alibi-top-left", "", "attention with ALiBi distances |i - j|, as if aligned top-left",
                      "count distances from i + Sk - Sq", [](Reading& r) { r.alibi_top_left = true; }});
    }
  }
  if (p.bias) {
    list.push_back({"bias-ignored", "", "attention without the bias", "add the bias after scale and softcap",
                    [](Reading& r) { r.problem.bias.reset(); }});
    if (p.bias->shape.head && p.heads_q > 1) {
      list.push_back({"bias-of-first-head", "", "attention with the first head's bias for every head",
                      "use the head stride of the bias", [](Reading& r) { r.bias = BiasUse::of_first_head; }});
    }
    if (p.bias->shape.batch && p.batch() > 1) {
      list.push_back({"bias-of-first-sequence", "", "attention with the first sequence's bias for every sequence",
                      "use the batch stride of the bias", [](Reading& r) { r.bias = BiasUse::of_first_sequence; }});
    }
    if (p.bias->shape.query && p.bias->shape.key) {
      list.push_back({"bias-transposed", "", "attention with the bias read as [key, query]", "its last two dimensions are query, key",
                      [](Reading& r) { r.bias = BiasUse::transposed; }});
    }
  }
}

void add_softmax_hypotheses(const Evidence& evidence, std::vector<Hypothesis>& list) {
  const Problem& p = evidence.problem;
  const auto lse = [&](const char* name, LseKind kind, const char* says, const char* fix) {
    list.push_back({name, "", says, fix, [kind](Reading& r) { r.lse = kind; }});
  };
  lse("lse-base-2", LseKind::base2, "an LSE in base 2", "multiply by ln 2 before it is stored");
  lse("lse-unscaled", LseKind::unscaled, "an LSE of the scores without scale", "take the logarithm of the sum of the scaled scores");
  lse("lse-max-unscaled", LseKind::max_unscaled, "an LSE with the maximum of the unscaled scores added", "scale the maximum before it is added");
  lse("lse-without-max", LseKind::without_max, "an LSE without the row's maximum", "add the maximum to the logarithm of the sum");
  const bool masked = p.causal != Causal::none || p.window || p.mask || p.block;
  if (masked) lse("lse-unmasked", LseKind::unmasked, "an LSE of the scores before the mask", "sum over visible keys alone");
  if (p.dropout) lse("lse-after-dropout", LseKind::after_dropout, "an LSE of the weights after dropout", "drop only what multiplies v");
  list.push_back({"empty-lse-positive", "", "an LSE of +inf for rows that see no key", "store -inf there, or declare the convention",
                  [](Reading& r) { r.empty_lse_positive = true; }});
  list.push_back({"empty-row-nan", "", "NaN for rows that see no key (0 / 0)", "write 0 where the sum of weights is 0",
                  [](Reading& r) { r.empty_row = EmptyRow::nan; }});
  list.push_back({"empty-row-mean", "", "the mean of v for rows that see no key (a large finite mask value)",
                  "mask with -inf and write 0", [](Reading& r) { r.empty_row = EmptyRow::mean; }});
}

void add_dropout_hypotheses(const Evidence& evidence, std::vector<Hypothesis>& list) {
  const Problem& p = evidence.problem;
  if (!p.dropout || p.dropout->p == 0) return;
  const auto add = [&](const char* name, const char* says, const char* fix, std::function<void(Reading&)> change) {
    list.push_back({name, "", says, fix, std::move(change)});
  };
  const char* mapping = "key = seed, counter = (j / 4, i, b * Hq + h, offset), word j % 4";
  add("dropout-ignored", "attention without dropout", "apply the keep mask", [](Reading& r) { r.problem.dropout.reset(); });
  add("dropout-unscaled", "attention with dropout but without 1 / (1 - p)", "multiply kept weights by 1 / (1 - p)", [](Reading& r) { r.keep_scale_power = 0; });
  add("dropout-scaled-twice", "attention with 1 / (1 - p) applied twice", "apply 1 / (1 - p) once", [](Reading& r) { r.keep_scale_power = 2; });
  add("dropout-keeps-p", "attention that keeps a share p instead of 1 - p", "keep where the word is below (1 - p) 2^32", [](Reading& r) { r.keep_p = true; });
  add("dropout-p-for-1-p", "attention with p and 1 - p exchanged, in the mask and the scale", "keep 1 - p, scale by 1 / (1 - p)", [](Reading& r) {
    r.keep_p = true;
    r.keep_scale_of_p = true;
  });
  add("dropout-scale-1/p", "attention with kept weights scaled by 1 / p", "scale by 1 / (1 - p)", [](Reading& r) { r.keep_scale_of_p = true; });
  for (const std::int64_t step : {1, -1}) {
    const std::uint64_t seed = p.dropout->seed + static_cast<std::uint64_t>(step);
    list.push_back({"dropout-seed", fmt::format("seed {}", seed), fmt::format("attention with the dropout mask of seed {}", seed), mapping,
                    [seed](Reading& r) { r.problem.dropout->seed = seed; }});
  }
  if (p.dropout->seed != 0 && p.dropout->seed != 1) add("dropout-seed", "attention with the dropout mask of seed 0", mapping, [](Reading& r) { r.problem.dropout->seed = 0; });
  add("dropout-offset", "attention with the dropout mask of the next offset", mapping, [](Reading& r) { ++r.problem.dropout->offset; });
  if (p.dropout->offset > 0) {
    add("dropout-offset", "attention with the dropout mask of offset 0", mapping, [](Reading& r) { r.problem.dropout->offset = 0; });
  }
  for (std::int64_t other = 1; other < p.heads_q && other <= 2; ++other) {
    const std::int64_t step = other == 1 ? 1 : p.heads_q - 1;
    list.push_back({"dropout-head", fmt::format("head h {:+}", other == 1 ? 1 : -1), "attention with the dropout mask of another head", mapping,
                    [step](Reading& r) { r.keep_head = step; }});
  }
  add("dropout-counter", "attention with rows and columns exchanged in the dropout counter", mapping, [](Reading& r) { r.counter = KeepCounter::rows_and_columns_swapped; });
  add("dropout-counter", "attention with a linear element index as dropout counter", mapping, [](Reading& r) { r.counter = KeepCounter::linear; });
  if (p.batch() > 1 && p.heads_q > 1) {
    add("dropout-counter", "attention with the dropout counter of (h * B + b)", mapping, [](Reading& r) { r.counter = KeepCounter::head_major; });
  }
}

void add_backward_hypotheses(const Evidence& evidence, std::vector<Hypothesis>& list) {
  if (!evidence.has_gradients()) return;
  const Problem& p = evidence.problem;
  const auto add = [&](const char* name, const char* says, const char* fix, std::function<void(Reading&)> change) {
    list.push_back({name, "", says, fix, std::move(change)});
  };
  add("delta-missing", "a backward without delta", "dS = P (dP - delta), delta = <dO, O> - dLSE", [](Reading& r) { r.delta_missing = true; });
  for (const std::int64_t step : {1, -1}) {
    list.push_back({"delta-of-another-row", fmt::format("row i {:+}", step), fmt::format("a backward with delta of row i {:+}", step), "index delta as LSE is",
                    [step](Reading& r) { r.delta_row = step; }});
  }
  if (p.heads_q > 1) add("delta-of-another-head", "a backward with delta of the next head", "index delta as LSE is", [](Reading& r) { r.delta_head = 1; });
  if (p.d_lse) add("dlse-ignored", "a backward without the gradient of LSE", "delta = <dO, O> - dLSE", [](Reading& r) { r.d_lse_ignored = true; });
  if (p.softcap > 0) add("softcap-slope-missing", "a backward without the derivative of the softcap", "multiply dS by 1 - tanh^2", [](Reading& r) { r.cap_slope_missing = true; });
  if (p.effective_scale() != 1) {
    add("dq-unscaled", "a dQ without the scale", "multiply dQ by the scale", [](Reading& r) { r.dq_unscaled = true; });
    add("dk-unscaled", "a dK without the scale", "multiply dK by the scale", [](Reading& r) { r.dk_unscaled = true; });
  }
  if (p.dropout && p.dropout->p > 0) add("dv-undropped", "a dV without dropout", "dV sums Z / (1 - p) P dO", [](Reading& r) { r.dv_undropped = true; });
  if (evidence.d_bias.present()) {
    const Extents& shape = evidence.d_bias.extents();
    if ((shape.batch == 1 && p.batch() > 1) || (shape.heads == 1 && p.heads_q > 1)) {
      add("dbias-of-first", "a dBias of the first sequence and head alone of those that share the bias", "sum over what the bias broadcasts", [](Reading& r) { r.bias_sum = GroupSum::first; });
      add("dbias-of-last", "a dBias of the last sequence and head alone of those that share the bias", "sum over what the bias broadcasts, do not overwrite", [](Reading& r) { r.bias_sum = GroupSum::last; });
    }
    if (p.effective_scale() != 1) add("dbias-scaled", "a dBias multiplied by the scale", "dBias is dS: the scale belongs to dQ and dK", [](Reading& r) { r.d_bias_scaled = true; });
    if (p.softcap > 0) add("dbias-in-softcap", "a dBias multiplied by the derivative of the softcap", "the bias is added after the softcap", [](Reading& r) { r.d_bias_in_softcap = true; });
  }
  if (p.group() > 1) {
    add("group-first-head", "dK and dV of the first query head of each group alone", "sum over the query heads of the group", [](Reading& r) { r.group = GroupSum::first; });
    add("group-last-head", "dK and dV of the last query head of each group alone", "sum over the group, do not overwrite", [](Reading& r) { r.group = GroupSum::last; });
  }
}

std::vector<Hypothesis> hypotheses_for(const Evidence& evidence) {
  std::vector<Hypothesis> list;
  add_mask_hypotheses(evidence, list);
  add_score_hypotheses(evidence, list);
  add_place_hypotheses(evidence, list);
  add_softmax_hypotheses(evidence, list);
  add_dropout_hypotheses(evidence, list);
  add_backward_hypotheses(evidence, list);
  add_tile_hypotheses(evidence, list);
  return list;
}

}  // namespace attest::diagnose

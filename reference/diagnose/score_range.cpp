// SPDX-License-Identifier: Apache-2.0
// Scores, scale and dropout, from rows spread over the call.
#include <algorithm>
#include <cmath>
#include <tuple>

#include <fmt/format.h>

#include "reference/diagnose/stages.h"
#include "reference/oracle/visibility.h"
#include "reference/verify/verdict.h"

namespace attest::diagnose {
namespace {

constexpr std::int64_t kRows = 64;
constexpr std::size_t kLongest = 16;
constexpr std::int64_t kDropoutRows = 2'000'000;
constexpr double kExpOverflow = 88.72;     // ln of the largest float32
constexpr double kExpVanishes = -103.97;   // below, exp is 0 in float32
constexpr double kHalfExpOverflow = 11.09; // ln 65504
constexpr double kHalfExpVanishes = -17.33; // ln of half of the smallest float16
constexpr double kOnOneKey = 0.999;

bool before(const RowAt& a, const RowAt& b) { return std::tie(a.b, a.h, a.i) < std::tie(b.b, b.h, b.i); }

struct Survey {
  std::int64_t rows = 0, peaked = 0, finite_rows = 0;
  double largest = 0, largest_raw = 0, highest = -HUGE_VAL, lowest_top = HUGE_VAL, lowest_lse = HUGE_VAL, highest_lse = -HUGE_VAL;
  RowAt at_largest;
};

/// The queries with the largest |q| of all, where the largest scores are likely.
std::vector<RowAt> longest_queries(const Evidence& e) {
  const Problem& p = e.problem;
  std::vector<std::pair<double, RowAt>> longest;  // by falling |q|
  std::vector<double> q(static_cast<std::size_t>(p.dim));
  for (std::int64_t b = 0; b < p.batch(); ++b) {
    for (std::int64_t i = 0; i < p.seq_q[b]; ++i) {
      const std::int64_t row = row_of_token(p, TensorId::q, b, i);
      for (std::int64_t h = 0; h < p.heads_q; ++h) {
        e.of(TensorId::q).read(b, row, h, q);
        double square = 0;
        for (const double x : q) square += x * x;
        if (longest.size() == kLongest && !(square > longest.back().first)) continue;
        if (longest.size() == kLongest) longest.pop_back();
        const auto place = std::find_if(longest.begin(), longest.end(), [&](const auto& other) { return square > other.first; });
        longest.insert(place, {square, {b, h, i}});
      }
    }
  }
  std::vector<RowAt> rows;
  for (const auto& [square, at] : longest) rows.push_back(at);
  return rows;
}

/// These queries, and rows evenly spread over the first and the last head of the first and last sequences: few keys are
/// held at a time.
std::vector<RowAt> surveyed_rows(const Evidence& e) {
  const Problem& p = e.problem;
  std::vector<RowAt> rows = longest_queries(e);
  for (const std::int64_t b : {std::int64_t{0}, p.batch() - 1}) {
    for (const std::int64_t h : {std::int64_t{0}, p.heads_q - 1}) {
      for (std::int64_t n = 0; n < kRows / 4 && p.seq_q[b] > 0; ++n) rows.push_back({b, h, n * (p.seq_q[b] - 1) / (kRows / 4 - 1)});
    }
  }
  std::sort(rows.begin(), rows.end(), before);
  rows.erase(std::unique(rows.begin(), rows.end(), [](const RowAt& a, const RowAt& b) { return !before(a, b) && !before(b, a); }), rows.end());
  return rows;
}

Survey survey(const Evidence& e) {
  Survey found;
  const Problem& p = e.problem;
  const Evaluator evaluator(e);
  const Reading contract = contract_reading(p);
  for (const RowAt& at : surveyed_rows(e)) {
    const SoftRow row = evaluator.soft_row(contract, at);
    if (!row.known) continue;
    ++found.rows;
    if (row.empty || !std::isfinite(row.lse)) continue;
    ++found.finite_rows;
    double top = -HUGE_VAL, p_top = 0;
    for (std::size_t j = 0; j < row.score.size(); ++j) {
      if (row.score[j] == -HUGE_VAL) continue;
      if (std::abs(row.score[j]) > found.largest) {
        found.largest = std::abs(row.score[j]);
        found.at_largest = at;
      }
      top = std::max(top, row.score[j]);
      p_top = std::max(p_top, row.p[j]);
      }
    found.highest = std::max(found.highest, top);
    found.lowest_top = std::min(found.lowest_top, top);
    found.lowest_lse = std::min(found.lowest_lse, row.lse);
    found.highest_lse = std::max(found.highest_lse, row.lse);
    found.peaked += p_top > kOnOneKey;
  }
  return found;
}

void check_range(const Evidence& e, const Survey& s, Lines& lines) {
  const auto say = [&](Level level, std::string what, std::string fix) { lines.push_back({"range", level, std::move(what), std::move(fix)}); };
  say(Level::ok, fmt::format("largest |score| {:.4g} at {}, LSE {:.4g} to {:.4g} ({} rows{})", s.largest, print_place({s.at_largest.b, s.at_largest.h, s.at_largest.i, -1}), s.lowest_lse, s.highest_lse, s.rows, s.rows < e.problem.total_q() * e.problem.heads_q ? " sampled, those of the largest |q| among them" : ""), "");
  if (s.highest > kExpOverflow) say(Level::warning, fmt::format("exp({:.4g}) overflows float32", s.highest), "subtract the row's maximum before exp");
  if (s.lowest_top < kExpVanishes) say(Level::warning, fmt::format("a row whose best score is {:.4g}: without its maximum subtracted every weight is 0, and 0 / 0 NaN", s.lowest_top), "subtract the row's maximum before exp");
  const double scale = e.problem.effective_scale();
  if (e.problem.dtype == Dtype::f16) {
    const double raw = scale != 0 && e.problem.softcap == 0 ? s.largest / std::abs(scale) : 0;
    if (raw > 65504) say(Level::warning, fmt::format("<q, k> reaches {:.4g}, beyond float16", raw), "keep scores in float32, or scale q first");
    if (s.lowest_top < kHalfExpVanishes && s.lowest_top >= kExpVanishes) say(Level::note, fmt::format("a row whose best score is {:.4g}: exp of all of it is 0 in float16", s.lowest_top), "subtract the row's maximum before P is rounded to float16");
    if (s.highest > kHalfExpOverflow && s.highest <= kExpOverflow) say(Level::note, fmt::format("exp({:.4g}) overflows float16", s.highest), "subtract the row's maximum before P is rounded to float16");
  }
  if (s.peaked > 0) say(Level::note, fmt::format("{} of {} rows put more than {} of their weight on one key", s.peaked, s.finite_rows, kOnOneKey), "their gradients dS are tiny: differences of nearly equal numbers");
  if (s.lowest_lse < -kExpOverflow) say(Level::warning, fmt::format("LSE goes down to {:.4g}: exp(-LSE) overflows float32", s.lowest_lse), "compute exp(s - LSE) in the backward, never exp(s) / exp(LSE)");
}

void check_scale(const Problem& p, Lines& lines) {
  const double scale = p.effective_scale(), usual = 1 / std::sqrt(static_cast<double>(p.dim));
  if (std::abs(scale - usual) <= 1e-6 * usual) {
    lines.push_back({"scale", Level::ok, fmt::format("{:.6g} = 1/sqrt({})", scale, p.dim), ""});
    return;
  }
  std::string guess = "give scale= only where it is meant to differ";
  const auto is = [scale](double x) { return std::abs(scale - x) <= 1e-3 * x; };
  if (is(1)) guess = "scale 1: was q scaled before, or was it forgotten?";
  if (is(usual * usual)) guess = "this is 1/D: was the root forgotten, or the scale applied twice?";
  if (is(std::sqrt(static_cast<double>(p.dim)))) guess = "this is sqrt(D): should it divide?";
  if (is(usual * 1.4426950408889634)) guess = "this has log2(e) in it: a scale for exp2, given as one for exp?";
  if (p.width_v() != p.dim && is(1 / std::sqrt(static_cast<double>(p.width_v())))) guess = "this is 1/sqrt(Dv): D is the width of q and k";
  lines.push_back({"scale", Level::warning, fmt::format("{:.6g}, {:.4g} times 1/sqrt({})", scale, scale / usual, p.dim), guess});
}

/// Rows of which dropout takes every visible key. Most rows are left after a key or two.
void check_dropout(const Evidence& e, Lines& lines) {
  const Problem& p = e.problem;
  const Reading contract = contract_reading(p);
  const std::int64_t all = p.total_q() * p.heads_q, step = std::max<std::int64_t>(1, all / kDropoutRows);
  std::int64_t n = 0, looked = 0, lost = 0;
  RowAt first;
  for (std::int64_t b = 0; b < p.batch(); ++b) {
    for (std::int64_t h = 0; h < p.heads_q; ++h) {
      for (std::int64_t i = 0; i < p.seq_q[b]; ++i) {
        if (n++ % step != 0) continue;
        ++looked;
        const KeyRange range = key_range(p, b, i);
        bool seen = false, kept = false;
        for (std::int64_t j = std::max<std::int64_t>(range.first, 0); !kept && j < std::min(range.last, p.seq_k[b]); ++j) {
          if (!visible(p, e.operands, b, h, i, j)) continue;
          seen = true;
          kept = keeps(contract, {b, h, i}, j) != 0;
        }
        if (seen && !kept && lost++ == 0) first = {b, h, i};
      }
    }
  }
  const std::string of = looked < all ? fmt::format("{} rows looked at, of {},", looked, all) : fmt::format("{} rows", looked);
  if (lost > 0) {
    lines.push_back({"dropout", Level::warning, fmt::format("{} of {} lost every key, the first {}", lost, of, print_place({first.b, first.h, first.i, -1})), "their O is 0 and their LSE finite: do not take them for empty rows"});
    return;
  }
  lines.push_back({"dropout", Level::ok, fmt::format("p {}, seed {}, offset {}; each of {} keeps a key", p.effective_dropout(), p.dropout->seed, p.dropout->offset, of), ""});
}

}  // namespace

void check_scores(const Evidence& e, Lines& lines) {
  const Survey s = survey(e);
  if (s.finite_rows > 0) check_range(e, s, lines);
  check_scale(e.problem, lines);
  if (e.problem.dropout) check_dropout(e, lines);
}

}  // namespace attest::diagnose

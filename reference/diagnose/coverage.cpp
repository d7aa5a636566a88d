// SPDX-License-Identifier: Apache-2.0
// Rows that see nothing, and what hides their keys.
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "reference/diagnose/stages.h"
#include "reference/oracle/visibility.h"
#include "reference/verify/verdict.h"

namespace attest::diagnose {
namespace {

constexpr double kPairsCounted = 3e8;  // beyond, rows are sampled

bool shows(const Evidence& e, const Problem& p, bool bias, const RowAt& at) {
  const KeyRange range = key_range(p, at.b, at.i);
  const std::int64_t first = std::max<std::int64_t>(range.first, 0), last = std::min(range.last, p.seq_k[at.b]);
  if (!p.mask && !p.block && !bias) return first < last;
  for (std::int64_t j = first; j < last; ++j) {
    if (visible(p, e.operands, at.b, at.h, at.i, j) && !(bias && e.operands.bias.at(at.b, at.h, at.i, j) == -HUGE_VAL)) return true;
  }
  return false;
}

/// The one mask that hides the whole row alone, or the combination.
std::string cause_of(const Evidence& e, const RowAt& at) {
  const Problem& p = e.problem;
  if (p.seq_k[at.b] == 0) return "a sequence without keys";
  Problem bare = p;
  bare.causal = Causal::none;
  bare.window.reset();
  bare.mask.reset();
  bare.block.reset();
  std::string together;
  const auto alone = [&](const char* name, const Problem& with, bool bias) {
    together += (together.empty() ? "" : " and ") + std::string(name);
    return !shows(e, with, bias, at);
  };
  Problem one = bare;
  one.causal = p.causal;
  if (p.causal != Causal::none && alone("causal", one, false)) return p.causal == Causal::bottom_right ? "causal bottom-right with Sq > Sk" : "causal";
  one = bare;
  one.window = p.window;
  if (one.window && one.window->alignment == Causal::none) one.window->alignment = p.causal;
  if (p.window && alone("window", one, false)) return "the window";
  one = bare;
  one.mask = p.mask;
  if (p.mask && alone("mask", one, false)) return "the explicit mask";
  one = bare;
  one.block = p.block;
  if (p.block && alone("block", one, false)) return "the block mask";
  if (p.bias && alone("bias", bare, true)) return "a bias of -inf throughout";
  return "the combination of " + together;
}

}  // namespace

void check_coverage(const Evidence& e, Lines& lines) {
  const Problem& p = e.problem;
  double pairs = 0;
  for (std::int64_t b = 0; b < p.batch(); ++b) pairs += static_cast<double>(p.seq_q[b]) * static_cast<double>(p.heads_q) * static_cast<double>(p.mask || p.block || p.bias ? p.seq_k[b] : 1);
  const auto step = static_cast<std::int64_t>(std::ceil(std::max(1.0, pairs / kPairsCounted)));
  struct Group {
    std::int64_t count = 0;
    RowAt first, last;
  };
  std::map<std::string, Group> causes;
  std::int64_t looked = 0, late = 0, n = 0;
  for (std::int64_t b = 0; b < p.batch(); ++b) {
    for (std::int64_t h = 0; h < p.heads_q; ++h) {
      for (std::int64_t i = 0; i < p.seq_q[b]; ++i) {
        if (n++ % step != 0) continue;
        ++looked;
        const RowAt at{b, h, i};
        if (shows(e, p, p.bias.has_value(), at)) {
          late += key_range(p, b, i).first >= 64;
          continue;
        }
        Group& group = causes[cause_of(e, at)];
        if (group.count++ == 0) group.first = at;
        group.last = at;
      }
    }
  }
  const std::string of = step > 1 ? fmt::format("{} rows looked at, every {}th", looked, step) : fmt::format("{} rows", looked);
  if (causes.empty()) lines.push_back({"coverage", Level::ok, fmt::format("every row sees a key ({})", of), ""});
  for (const auto& [cause, group] : causes) {
    lines.push_back({"coverage", Level::warning, fmt::format("{} of {} see no key, from {} to {}: {}", group.count, of, print_place({group.first.b, group.first.h, group.first.i, -1}), print_place({group.last.b, group.last.h, group.last.i, -1}), cause),
                     "their O is 0 and their LSE -inf; 0 / 0 there is where many NaN start"});
  }
  if (late > 0) {
    lines.push_back({"coverage", Level::note, fmt::format("in {} of {} the first 64 keys are hidden", late, of), "a running maximum that is still -inf gives exp(-inf + inf) = NaN: skip such tiles or guard the subtraction"});
  }
}

}  // namespace attest::diagnose

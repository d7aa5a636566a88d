// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/cases/features.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>

#include <fmt/format.h>

#include "reference/problem/inputs.h"
#include "reference/problem/layout.h"

namespace attest {
namespace {

using Classify = std::string (*)(const Problem&, const CaseSpace&);

struct Definition {
  Feature feature;
  Classify classify;
};

constexpr std::int64_t kNarrowWindow = 7;
constexpr std::int64_t kShortPage = 64;  // pages below it are short
constexpr double kTinyScale = 1e-3;
constexpr double kLargeScale = 4;

std::string off_or(bool on, const char* value) { return on ? value : "off"; }

/// Where a length or a window lies with respect to tiles.
std::string in_tiles(std::int64_t length, const CaseSpace& space) {
  const auto is = [&](auto of_tile) { return std::ranges::any_of(space.tiles, [&](std::int64_t tile) { return length == of_tile(tile); }); };
  if (is([](std::int64_t tile) { return tile; })) return "tile";
  if (is([](std::int64_t tile) { return tile - 1; })) return "tile-1";
  if (is([](std::int64_t tile) { return tile + 1; })) return "tile+1";
  if (is([](std::int64_t tile) { return tile + tile / 2; })) return "tile*1.5";
  return "other";
}

std::string length_class(std::int64_t length, const CaseSpace& space) {
  if (length <= 1) return std::to_string(length);
  return in_tiles(length, space);
}

std::string padding_class(const Problem& p, const CaseSpace& space) {
  std::int64_t longest = 0;
  if (p.layout == Layout::thd) {
    longest = std::max(p.rows_q() - p.total_q(), p.page_size > 0 ? 0 : p.rows_k() - p.total_k());
  } else {
    for (std::size_t b = 0; b < p.seq_q.size(); ++b) {
      longest = std::max({longest, p.rows_q() - p.seq_q[b], p.page_size > 0 ? 0 : p.rows_k() - p.seq_k[b]});
    }
  }
  if (longest == 0) return "none";
  return std::string(p.pad == PadSide::left ? "left" : "right") + (longest > space.key_tile ? "-long" : "");
}

std::string batch_class(const Problem& p, const CaseSpace&) {
  if (p.batch() == 1) return "one";
  const auto zero = [](const std::vector<std::int64_t>& lengths) { return std::ranges::find(lengths, 0) != lengths.end(); };
  if (zero(p.seq_q) || zero(p.seq_k)) return "empty-member";
  const auto equal = [](const std::vector<std::int64_t>& lengths) {
    return std::ranges::all_of(lengths, [&](std::int64_t length) { return length == lengths.front(); });
  };
  return equal(p.seq_q) && equal(p.seq_k) ? "equal" : "unequal";
}

std::string width_class(const Problem& p, const CaseSpace&) {
  if (p.dim % 8 != 0) return "odd";
  if (p.dim > 128) return "wide";
  return p.dim == 64 || p.dim == 128 ? std::to_string(p.dim) : "multiple-of-8";
}

std::string scale_class(const Problem& p, const CaseSpace&) {
  if (!p.scale) return "default";
  if (*p.scale == 0) return "0";
  if (*p.scale < 0) return "negative";
  return *p.scale < kTinyScale ? "tiny" : *p.scale >= kLargeScale ? "large" : "other";
}

std::string bias_class(const Problem& p, const CaseSpace&) {
  if (!p.bias) return "off";
  if (p.bias->hide > 0) return "hiding";
  return p.bias_dtype() != p.dtype && format_of(p.dtype).bytes > 1 ? "other-type" : "plain";
}

std::string window_class(const Problem& p, const CaseSpace& space) {
  if (!p.window) return "off";
  const std::int64_t side = p.window->left >= 0 ? p.window->left : p.window->right;
  if (side < 0) return "open";
  return side <= kNarrowWindow ? "narrow" : in_tiles(side, space);
}

std::string dropout_class(const Problem& p, const CaseSpace&) {
  if (!p.dropout) return "off";
  return p.dropout->p == 0 ? "0" : p.dropout->p < 0.5 ? "low" : "high";
}

std::string strides_class(const Problem& p, const CaseSpace&) {
  bool any = false;
  for (const TensorId id : kTensorIds) {
    const std::optional<Strides>& given = p.strides[static_cast<std::size_t>(id)];
    if (!given) continue;
    any = true;
    const Extents e = extents_of(p, id);
    const bool shared = (e.batch > 1 && given->batch == 0 && p.layout != Layout::thd) || (e.rows > 1 && given->seq == 0) ||
                        (e.heads > 1 && given->head == 0);
    if (shared) return "expanded";
  }
  return any ? "other" : "own";
}

std::string causal_class(const Problem& p, const CaseSpace&) {
  return p.causal == Causal::none ? "off" : p.causal == Causal::top_left ? "top-left" : "bottom-right";
}

std::string pages_class(const Problem& p, const CaseSpace&) {
  return p.page_size == 0 ? "off" : p.page_size == 1 ? "1" : p.page_size < kShortPage ? "short" : "long";
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family& f : families()) {
    if (f.kind == FamilyKind::random || f.kind == FamilyKind::structured) names.emplace_back(f.name);
  }
  return names;
}

const std::vector<Definition>& definitions() {
  static const std::vector<std::string> lengths = {"0", "1", "tile-1", "tile", "tile+1", "tile*1.5", "other"};
  static const std::vector<Definition> list = {
      {{"dtype", {"f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2"}, ""}, [](const Problem& p, const CaseSpace&) { return std::string(name_of(p.dtype)); }},
      {{"out", {"default", "other"}, "type of the outputs"}, [](const Problem& p, const CaseSpace&) { return std::string(p.out_dtype ? "other" : "default"); }},
      {{"layout", {"bshd", "bhsd", "thd"}, ""}, [](const Problem& p, const CaseSpace&) { return std::string(p.layout == Layout::thd ? "thd" : p.layout == Layout::bhsd ? "bhsd" : "bshd"); }},
      {{"padding", {"none", "right", "right-long", "left", "left-long"}, "long: more than a key tile of the kernel, for some sequence"}, padding_class},
      {{"batch", {"one", "equal", "unequal", "empty-member"}, "lengths of the sequences"}, batch_class},
      {{"q-length", lengths, "of the longest sequence"}, [](const Problem& p, const CaseSpace& s) { return length_class(p.max_q(), s); }},
      {{"k-length", lengths, "of the longest sequence"}, [](const Problem& p, const CaseSpace& s) { return length_class(p.max_k(), s); }},
      {{"lengths", {"q<k", "q=k", "q>k"}, "of the longest sequences"}, [](const Problem& p, const CaseSpace&) { return std::string(p.max_q() < p.max_k() ? "q<k" : p.max_q() == p.max_k() ? "q=k" : "q>k"); }},
      {{"group", {"1", "2", "3", "4", "8"}, "query heads to a key/value head"}, [](const Problem& p, const CaseSpace&) { return std::to_string(p.group()); }},
      {{"kv-heads", {"1", "more"}, ""}, [](const Problem& p, const CaseSpace&) { return std::string(p.heads_kv == 1 ? "1" : "more"); }},
      {{"width", {"64", "128", "multiple-of-8", "odd", "wide"}, "of q and k; wide: over 128"}, width_class},
      {{"v-width", {"same", "narrower", "wider"}, ""}, [](const Problem& p, const CaseSpace&) { return std::string(p.width_v() == p.dim ? "same" : p.width_v() < p.dim ? "narrower" : "wider"); }},
      {{"scale", {"default", "0", "negative", "tiny", "large", "other"}, "tiny: under 0.001; large: from 4 on"}, scale_class},
      {{"softcap", {"off", "tight", "loose"}, "tight: up to 1"}, [](const Problem& p, const CaseSpace&) { return std::string(p.softcap == 0 ? "off" : p.softcap <= 1 ? "tight" : "loose"); }},
      {{"bias", {"off", "plain", "hiding", "other-type"}, "hiding: with -inf"}, bias_class},
      {{"alibi", {"off", "on"}, ""}, [](const Problem& p, const CaseSpace&) { return off_or(p.alibi, "on"); }},
      {{"causal", {"off", "top-left", "bottom-right"}, ""}, causal_class},
      {{"window", {"off", "open", "narrow", "tile-1", "tile", "tile+1"}, "its left side, else its right; narrow: up to 7"}, window_class},
      {{"mask", {"off", "full", "partial"}, "full: it shows everything"}, [](const Problem& p, const CaseSpace&) { return std::string(!p.mask ? "off" : p.mask->density == 1 ? "full" : "partial"); }},
      {{"block", {"off", "band", "random"}, "band: local and global tiles alone"}, [](const Problem& p, const CaseSpace&) { return std::string(!p.block ? "off" : p.block->random > 0 ? "random" : "band"); }},
      {{"dropout", {"off", "0", "low", "high"}, "high: from 0.5 on"}, dropout_class},
      {{"direction", {"forward", "backward", "both"}, ""}, [](const Problem& p, const CaseSpace&) { return std::string(!p.wants_backward() ? "forward" : p.wants_forward() ? "both" : "backward"); }},
      {{"dlse", {"off", "on"}, ""}, [](const Problem& p, const CaseSpace&) { return off_or(p.d_lse, "on"); }},
      {{"dbias", {"off", "on"}, ""}, [](const Problem& p, const CaseSpace&) { return off_or(p.d_bias, "on"); }},
      {{"pages", {"off", "1", "short", "long"}, "tokens of a page; long: from 64 on"}, pages_class},
      {{"strides", {"own", "other", "expanded"}, "expanded: an input with stride 0"}, strides_class},
      {{"family", family_names(), "of the inputs; exact families are drawn beside these"}, [](const Problem& p, const CaseSpace&) { return p.fill.family; }},
  };
  return list;
}

}  // namespace

std::span<const Feature> features() {
  static const std::vector<Feature> list = [] {
    std::vector<Feature> all;
    for (const Definition& definition : definitions()) all.push_back(definition.feature);
    return all;
  }();
  return list;
}

std::vector<int> value_counts() {
  std::vector<int> counts;
  for (const Feature& feature : features()) counts.push_back(static_cast<int>(feature.values.size()));
  return counts;
}

int feature_index(std::string_view name) {
  const auto found = std::ranges::find_if(features(), [&](const Feature& feature) { return feature.name == name; });
  if (found == features().end()) throw std::logic_error(fmt::format("there is no feature {}", name));
  return static_cast<int>(found - features().begin());
}

int value_index(int feature, std::string_view value) {
  const std::vector<std::string>& values = features()[static_cast<std::size_t>(feature)].values;
  const auto found = std::ranges::find(values, value);
  return found == values.end() ? kNoValue : static_cast<int>(found - values.begin());
}

FactorValues feature_values(const Problem& problem, const CaseSpace& space) {
  FactorValues values;
  for (const Definition& definition : definitions()) {
    values.push_back(value_index(static_cast<int>(values.size()), definition.classify(problem, space)));
  }
  return values;
}

std::string describe(const Combination& combination) {
  std::string text;
  for (std::size_t n = 0; n < combination.factors.size(); ++n) {
    const Feature& feature = features()[static_cast<std::size_t>(combination.factors[n])];
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", feature.name, feature.values[static_cast<std::size_t>(combination.values[n])]);
  }
  return text;
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// From a row of the array to a case: what the row leaves open (which tile, how many sequences, which tensor has strides) is
// drawn until the case has the features of the row.
#include "reference/verify/cases/covering_cases.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "reference/problem/inputs.h"
#include "reference/problem/invalid_request.h"
#include "reference/problem/layout.h"
#include "reference/verify/cases/features.h"

namespace attest {
namespace {

constexpr int kDraws = 400;  // cases drawn for one row

class CaseBuilder {
 public:
  CaseBuilder(const CaseSpace& space, const FactorValues& row, std::uint64_t seed) : space_(space), row_(row), seed_(seed) {}

  /// Nothing where no draw has all features of the row.
  std::optional<Problem> build() {
    for (int n = 0; n < kDraws; ++n) {
      const std::optional<Problem> problem = draw();
      if (problem && feature_values(*problem, space_) == row_) return problem;
    }
    return std::nullopt;
  }

 private:
  std::uint64_t word() { return random_word(seed_, 11, draws_++); }
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(word() % static_cast<std::uint64_t>(std::max<std::int64_t>(most - least + 1, 1)));
  }
  template <typename T>
  T one_of(const std::vector<T>& values) { return values[word() % values.size()]; }
  bool chance(int percent) { return between(0, 99) < percent; }

  std::string_view wanted(const char* feature) const {
    const int index = feature_index(feature);
    return features()[static_cast<std::size_t>(index)].values[static_cast<std::size_t>(row_[static_cast<std::size_t>(index)])];
  }
  bool wants(const char* feature, std::string_view value) const { return wanted(feature) == value; }

  std::int64_t near_tile(std::string_view kind) {
    const std::int64_t tile = one_of(space_.tiles);
    if (kind == "tile-1") return tile - 1;
    if (kind == "tile+1") return tile + 1;
    return kind == "tile" ? tile : tile + tile / 2;
  }

  std::int64_t draw_length(const char* feature) {
    const std::string_view kind = wanted(feature);
    if (kind == "0" || kind == "1") return kind == "1";
    const std::int64_t length = kind == "other" ? between(2, chance(70) ? 80 : space_.longest) : near_tile(kind);
    return std::min(length, space_.longest);
  }

  void draw_types(Problem& p) {
    p.dtype = dtype_from_name(wanted("dtype")).value();
    if (wants("out", "other")) p.out_dtype = one_of<Dtype>({Dtype::f32, Dtype::f16, Dtype::bf16});
  }

  void draw_heads(Problem& p) {
    p.heads_kv = wants("kv-heads", "1") ? 1 : between(2, 3);
    p.heads_q = p.heads_kv * std::stoi(std::string(wanted("group")));
    const std::string_view width = wanted("width");
    p.dim = width == "64" ? 64 : width == "128" ? 128
            : width == "odd" ? one_of<std::int64_t>({1, 3, 5, 33, 100})
            : width == "wide" ? one_of<std::int64_t>({192, 256, 160, 136}) : one_of<std::int64_t>({8, 16, 32, 40, 72, 80, 96, 104});
    if (wants("v-width", "same")) return;
    std::vector<std::int64_t> widths = {1, 5, 8, 16, 32, 64, 128, 256, 264};
    std::erase_if(widths, [&](std::int64_t v) { return wants("v-width", "narrower") ? v >= p.dim : v <= p.dim; });
    if (!widths.empty()) p.dim_v = one_of(widths);
  }

  void draw_members(std::vector<std::int64_t>& lengths, std::int64_t longest, std::int64_t batch) {
    const bool equal = wants("batch", "one") || wants("batch", "equal");
    lengths.assign(static_cast<std::size_t>(batch), longest);
    if (equal) return;
    const bool close = wants("padding", "right") || wants("padding", "left");
    for (std::int64_t& length : lengths) length = between(std::max<std::int64_t>(close ? longest - space_.key_tile : 1, std::min<std::int64_t>(longest, 1)), longest);
    lengths[word() % lengths.size()] = longest;
    if (wants("batch", "empty-member") && chance(60)) lengths[word() % lengths.size()] = 0;
  }

  void draw_lengths(Problem& p) {
    const std::string_view layout = wanted("layout");
    p.layout = layout == "thd" ? Layout::thd : layout == "bhsd" ? Layout::bhsd : Layout::bshd;
    const std::string_view padding = wanted("padding");
    p.pad = padding.starts_with("left") ? PadSide::left : PadSide::right;
    std::int64_t q = draw_length("q-length");
    std::int64_t k = draw_length("k-length");
    if (wants("lengths", "q=k")) k = q;
    const std::int64_t batch = wants("batch", "one") ? 1 : between(2, 4);
    draw_members(p.seq_q, q, batch);
    draw_members(p.seq_k, k, batch);
    const std::int64_t longer = padding == "none" ? 0 : padding.ends_with("long") ? space_.key_tile + between(1, 9) : between(1, 9);
    if (longer == 0) return;
    const bool both = chance(30);
    const bool of_q = both || chance(50);
    if (of_q) p.extent_q = p.rows_q() + longer;
    if (both || !of_q) p.extent_k = p.rows_k() + longer;
    // Members of their own lengths may be padding enough.
    if (p.layout != Layout::thd && !wants("batch", "one") && chance(30)) p.extent_q.reset(), p.extent_k.reset();
  }

  void draw_scores(Problem& p) {
    const std::string_view scale = wanted("scale");
    if (scale == "0") p.scale = 0.0;
    if (scale == "negative") p.scale = one_of<double>({-0.5, -0.125, -1.0});
    if (scale == "tiny") p.scale = 1e-4;
    if (scale == "large") p.scale = one_of<double>({4.0, 30.0});
    if (scale == "other") p.scale = one_of<double>({1.0, 0.5, 0.0883883461356163});
    if (wants("softcap", "tight")) p.softcap = 1;
    if (wants("softcap", "loose")) p.softcap = one_of<double>({15.0, 50.0});
    p.alibi = wants("alibi", "on");
    if (wants("bias", "off")) return;
    Bias bias;
    bias.shape = {chance(40), chance(40), chance(80), chance(90)};
    if (wants("bias", "other-type")) bias.dtype = Dtype::f32;
    if (wants("bias", "hiding")) bias.hide = one_of<double>({0.1, 0.5, 0.9});
    p.bias = bias;
  }

  void draw_masks(Problem& p) {
    if (!wants("causal", "off")) p.causal = wants("causal", "top-left") ? Causal::top_left : Causal::bottom_right;
    if (const std::string_view kind = wanted("window"); kind != "off") {
      Window window;
      if (kind != "open") {
        const std::int64_t side = kind == "narrow" ? one_of<std::int64_t>({0, 1, 2, 7}) : near_tile(kind);
        const std::int64_t other = one_of<std::int64_t>({-1, 0, 1, 2, side, side + 1});
        window = chance(80) ? Window{side, other, Causal::none} : Window{-1, side, Causal::none};
      }
      if (p.causal == Causal::none && chance(30)) window.alignment = Causal::top_left;
      p.window = window;
    }
    if (!wants("mask", "off")) {
      p.mask = ExplicitMask{{chance(40), chance(40), chance(80), chance(90)}, wants("mask", "full") ? 1.0 : one_of<double>({0.5, 0.1, 0.9})};
    }
    if (!wants("block", "off")) {
      BlockMask block;
      block.rows = one_of<std::int64_t>({16, 64, 1, 24});
      block.cols = one_of<std::int64_t>({16, 64, 8, 128});
      if (chance(70)) block.local = between(0, 1);
      if (chance(40) || block.local < 0) block.global = 1;
      if (wants("block", "random")) block.random = one_of<double>({0.3, 0.6, 1.0});
      p.block = block;
    }
    if (wants("dropout", "off")) return;
    const double p_drop = wants("dropout", "0") ? 0.0 : wants("dropout", "low") ? one_of<double>({0.1, 0.2}) : one_of<double>({0.5, 0.9});
    const auto seed = static_cast<std::uint64_t>(between(0, 1 << 20));
    p.dropout = Dropout{p_drop, chance(50) ? seed : seed << 32 | seed, static_cast<std::uint64_t>(chance(50) ? 0 : between(1, 1000))};
  }

  void draw_direction(Problem& p) {
    p.direction = wants("direction", "both") ? Direction::both : wants("direction", "forward") ? Direction::forward : Direction::backward;
    p.d_lse = wants("dlse", "on");
    p.d_bias = wants("dbias", "on");
    const std::string_view pages = wanted("pages");
    if (pages == "off") return;
    p.page_size = pages == "1" ? 1 : pages == "short" ? one_of<std::int64_t>({16, 32, 48}) : one_of<std::int64_t>({64, 128, 256});
    p.extent_k.reset();
  }

  void draw_strides(Problem& p) {
    const bool expanded = wants("strides", "expanded");
    if (!expanded && wants("strides", "own")) return;
    std::vector<TensorId> ids = {TensorId::q, TensorId::o};
    if (p.page_size == 0) ids.insert(ids.end(), {TensorId::k, TensorId::v});
    if (p.wants_backward()) ids.insert(ids.end(), {TensorId::d_o, TensorId::dq, TensorId::dk, TensorId::dv});
    if (expanded) std::erase_if(ids, is_output);
    const TensorId id = one_of(ids);
    const Extents e = extents_of(p, id);
    const std::int64_t gap = one_of<std::int64_t>({0, 8, 3});
    Strides strides = spaced_strides(e, gap, chance(50));
    if (p.layout == Layout::thd) strides.batch = 0;
    if (expanded) {
      // Heads where there are several, else sequences, else tokens.
      if (e.heads > 1) {
        strides = {(e.width + gap) * std::max<std::int64_t>(e.rows, 1), e.width + gap, 0};
      } else if (e.batch > 1) {
        strides.batch = 0;
      } else {
        strides.seq = 0;
      }
      if (p.layout == Layout::thd) strides.batch = 0;
    }
    p.strides[static_cast<std::size_t>(id)] = strides;
  }

  std::optional<Problem> draw() {
    Problem p;
    draw_types(p);
    draw_heads(p);
    draw_lengths(p);
    draw_scores(p);
    draw_masks(p);
    draw_direction(p);
    p.fill.family = wanted("family");
    p.fill.seed = static_cast<std::uint64_t>(between(0, 1 << 30));
    draw_strides(p);
    // A field that repeats its default is left out of the text.
    if (const std::optional<Dtype> given = std::exchange(p.out_dtype, std::nullopt); given && *given != p.output_dtype()) p.out_dtype = given;
    if (forward_work(p) > space_.most_work || !can_be_judged(family(p.fill.family), p)) return std::nullopt;
    try {
      validate(p);
    } catch (const InvalidRequest&) {
      return std::nullopt;
    }
    return p;
  }

  const CaseSpace& space_;
  const FactorValues& row_;
  std::uint64_t seed_;
  std::uint64_t draws_ = 0;
};

/// A row with little in it, from which the kernel is asked about one value at a time.
FactorValues plain_row(const CaseSpace& space) {
  FactorValues row(features().size(), 0);  // most features begin with what is off or usual
  const auto set = [&row](const char* feature, const char* value) {
    const int index = feature_index(feature);
    row[static_cast<std::size_t>(index)] = value_index(index, value);
  };
  set("dtype", "f32");
  set("q-length", "tile");
  set("k-length", "tile");
  set("lengths", "q=k");
  set("direction", space.direction == Direction::backward ? "backward" : "forward");
  set("family", "normal");
  return row;
}

class Asker {
 public:
  Asker(const CaseSpace& space, std::uint64_t seed, const WhyDeclined& why_declined) : space_(space), seed_(seed), why_declined_(why_declined) {}

  /// A case with the features of the row that the kernel takes, else why there is none.
  std::optional<Problem> ask(const FactorValues& row, std::string& reason) {
    std::optional<Problem> problem = CaseBuilder(space_, row, random_word(seed_, 13, asked_++)).build();
    reason = problem ? "" : "no case with these and other features was found";
    if (!problem || !why_declined_) return problem;
    reason = why_declined_(*problem);
    if (reason.empty()) return problem;
    reason = "declined: " + reason;
    return std::nullopt;
  }

  /// A row that the kernel takes, near the plain one: another value of one feature, or of two. Empty where there is none.
  FactorValues plain() {
    const FactorValues start = plain_row(space_);
    std::string reason;
    if (ask(start, reason)) return start;
    std::vector<FactorValues> near;
    for (std::size_t feature = 0; feature < start.size(); ++feature) {
      for (int value = 0; value < static_cast<int>(features()[feature].values.size()); ++value) {
        FactorValues row = start;
        row[feature] = value;
        near.push_back(row);
      }
    }
    for (const FactorValues& row : near) {
      if (ask(row, reason)) return row;
    }
    // Types, layouts and directions are what kernels are particular about.
    for (const FactorValues& first : near) {
      for (const char* feature : {"dtype", "layout", "direction", "width"}) {
        const auto at = static_cast<std::size_t>(feature_index(feature));
        for (int value = 0; value < static_cast<int>(features()[at].values.size()); ++value) {
          FactorValues row = first;
          row[at] = value;
          if (ask(row, reason)) return row;
        }
      }
    }
    return {};
  }

 private:
  const CaseSpace& space_;
  std::uint64_t seed_;
  const WhyDeclined& why_declined_;
  std::uint64_t asked_ = 0;
};

/// Values that the kernel declines even where all else is as it likes it.
void forbid_declined(Asker& asker, const FactorValues& plain, CoveringArray& array) {
  for (std::size_t feature = 0; feature < plain.size(); ++feature) {
    for (int value = 0; value < static_cast<int>(features()[feature].values.size()); ++value) {
      FactorValues row = plain;
      row[feature] = value;
      std::string reason;
      if (asker.ask(row, reason) || !reason.starts_with("declined")) continue;
      array.forbid(static_cast<int>(feature), value, reason);
    }
  }
}

}  // namespace

CoveringCases covering_cases(const CaseSpace& space, int strength, std::uint64_t seed, const WhyDeclined& why_declined) {
  CoveringArray array(value_counts(), rules_for(space), strength, seed);
  Asker asker(space, seed, why_declined);
  if (const FactorValues plain = asker.plain(); !plain.empty()) {
    array.set_plain(plain);
    forbid_declined(asker, plain, array);
  }
  CoveringCases result;
  result.strength = strength;
  while (const std::optional<FactorValues> row = array.propose()) {
    std::string reason;
    if (const std::optional<Problem> problem = asker.ask(*row, reason)) {
      array.accept(*row);
      result.cases.push_back(*problem);
    } else {
      array.reject(reason);
    }
  }
  result.combinations = array.combinations();
  result.covered = array.covered();
  result.unreached = array.unreached();
  return result;
}

}  // namespace attest

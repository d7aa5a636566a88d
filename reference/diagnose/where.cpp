// SPDX-License-Identifier: Apache-2.0
// Where errors lie: rows, keys, heads, sequences, and the tile size that they point to.
#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "reference/diagnose/stages.h"
#include "reference/verify/judge.h"

namespace attest::diagnose {
namespace {

constexpr std::int64_t kTileSizes[] = {256, 128, 64, 32, 16};
constexpr std::int64_t kMostRows = 512;  // consecutive ones of one head
constexpr std::int64_t kFewestRows = 64;
constexpr double kRowWork = 1e9;         // multiply-adds of these rows
constexpr std::int64_t kBars = 32;
constexpr std::size_t kNamedPlaces = 12;

/// "from 64 on", "in every second tile of 32", "in tile 3 of 16"; empty where no tile fits.
std::string tile_of(const std::vector<bool>& wrong) {
  const auto n = static_cast<std::int64_t>(wrong.size());
  for (const std::int64_t tile : kTileSizes) {
    if (n <= tile) continue;
    // Tiles are wrong or right as a whole, by their majority, and both kinds occur.
    std::vector<bool> tiles;
    bool fits = true;
    for (std::int64_t first = 0; first < n; first += tile) {
      const std::int64_t end = std::min(n, first + tile);
      const std::int64_t bad = std::count(wrong.begin() + first, wrong.begin() + end, true);
      tiles.push_back(2 * bad > end - first);
      fits &= tiles.back() ? 10 * bad >= 9 * (end - first) : 10 * bad <= end - first;
    }
    const std::int64_t bad_tiles = std::count(tiles.begin(), tiles.end(), true);
    if (!fits || bad_tiles == 0 || bad_tiles == static_cast<std::int64_t>(tiles.size())) continue;
    const std::int64_t first = std::find(tiles.begin(), tiles.end(), true) - tiles.begin();
    const bool to_the_end = std::all_of(tiles.begin() + first, tiles.end(), [](bool b) { return b; });
    if (to_the_end && bad_tiles > 1) return fmt::format("start at {}, a multiple of {}", first * tile, tile);
    if (bad_tiles == 1) return fmt::format("fill tile {} of {}", first, tile);
    const std::int64_t second = std::find(tiles.begin() + first + 1, tiles.end(), true) - tiles.begin();
    bool periodic = true;
    for (std::int64_t t = 0; t < static_cast<std::int64_t>(tiles.size()); ++t) periodic &= tiles[t] == (t >= first && (t - first) % (second - first) == 0);
    return periodic && bad_tiles > 2 ? fmt::format("repeat every {} from {} on, {} at a time", (second - first) * tile, first * tile, tile) : fmt::format("fill whole tiles of {}", tile);
  }
  // The same few places of each tile.
  for (std::size_t t = std::size(kTileSizes); t-- > 0;) {
    const std::int64_t tile = kTileSizes[t];
    if (n < 3 * tile) continue;
    bool fits = true;
    for (std::int64_t i = 0; fits && i + tile < n; ++i) fits = wrong[i] == wrong[i + tile];
    const std::int64_t bad = std::count(wrong.begin(), wrong.begin() + tile, true);
    if (fits && bad > 0 && bad < tile) return fmt::format("repeat with period {}", tile);
  }
  return "";
}

/// One character a stretch: '.' right, '#' wrong, '+' partly.
std::string bar(const std::vector<bool>& wrong) {
  const auto n = static_cast<std::int64_t>(wrong.size());
  const std::int64_t cells = std::min(n, kBars);
  std::string text;
  for (std::int64_t c = 0; c < cells; ++c) {
    const std::int64_t from = c * n / cells, to = (c + 1) * n / cells;
    const std::int64_t bad = std::count(wrong.begin() + from, wrong.begin() + to, true);
    text += bad == 0 ? '.' : bad == to - from ? '#' : '+';
  }
  return text;
}

bool is_wrong(const TensorFit& fit) { return fit.explained < fit.total; }

/// Which of the places of one kind are right and which wrong, where both occur; empty otherwise.
class Places {
 public:
  void add(std::int64_t place, bool wrong) { wrong_[place] |= wrong; }
  std::string describe(const char* kind) const {
    std::vector<std::int64_t> right, wrong;
    for (const auto& [place, bad] : wrong_) (bad ? wrong : right).push_back(place);
    if (right.empty() || wrong.empty()) return "";
    return fmt::format("{} {} wrong, {} right", kind, list(wrong), list(right));
  }

 private:
  static std::string list(const std::vector<std::int64_t>& places) {
    const std::size_t shown = std::min(places.size(), kNamedPlaces);
    return fmt::format("{}{}", fmt::join(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(shown), ", "), places.size() > shown ? ", ..." : "");
  }
  std::map<std::int64_t, bool> wrong_;
};

/// Heads and sequences of every tensor.
class Map {
 public:
  void add(const Fit& fit, std::int64_t b, std::int64_t h) {
    for (const TensorFit& one : fit.tensors) {
      heads_[one.tensor].add(h, is_wrong(one));
      sequences_[one.tensor].add(b, is_wrong(one));
    }
  }
  void say(Lines& lines) const {
    for (const auto& [tensor, places] : heads_) {
      const bool keys = tensor == "dk" || tensor == "dv";
      if (const std::string text = places.describe(keys ? "key/value heads" : "heads"); !text.empty()) lines.push_back({"where", Level::note, tensor + ": " + text, "compare the head mapping and head strides"});
    }
    for (const auto& [tensor, places] : sequences_) {
      if (const std::string text = places.describe("sequences"); !text.empty()) lines.push_back({"where", Level::note, tensor + ": " + text, "compare their lengths, offsets and batch strides"});
    }
  }

 private:
  std::map<std::string, Places> heads_, sequences_;
};

void describe(const std::string& tensor, const std::string& axis, const std::vector<bool>& wrong, const std::string& place, Lines& lines) {
  const std::int64_t bad = std::count(wrong.begin(), wrong.end(), true);
  if (bad == 0) return;
  const std::string tile = bad == static_cast<std::int64_t>(wrong.size()) ? "" : tile_of(wrong);
  lines.push_back({"where", Level::note, fmt::format("{}: {} of {} {} wrong in {} |{}|{}", tensor, bad, wrong.size(), axis, place, bar(wrong), tile.empty() ? "" : "; the errors " + tile),
                   tile.empty() ? "" : "look at what happens at the edge of a tile of that size"});
}

using RowMap = std::map<std::string, std::vector<bool>>;

/// Consecutive rows of one head, under the contract or another reading.
RowMap rows_of(const Evidence& e, const Evaluator& evaluator, const Passes& passes, const RowAt& head) {
  const Problem& p = e.problem;
  const double row = static_cast<double>(std::max<std::int64_t>(1, p.seq_k[head.b] * (p.dim + p.width_v())));
  const std::int64_t count = std::min({p.seq_q[head.b], kMostRows, std::max(kFewestRows, static_cast<std::int64_t>(kRowWork / row))});
  std::vector<Fit> fits(static_cast<std::size_t>(count));
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t i = 0; i < count; ++i) fits[static_cast<std::size_t>(i)] = fit_of(evaluator, e, passes, {.rows = {{head.b, head.h, i}}});
  RowMap wrong;
  for (const Fit& fit : fits) {
    for (const TensorFit& one : fit.tensors) wrong[one.tensor].push_back(is_wrong(one));
  }
  return wrong;
}

void locate_rows(const Evidence& e, const Explanation& x, const Evaluator& evaluator, const Passes& passes, Lines& lines) {
  const Judged<RowAt>* worst = nullptr;
  for (const auto& judged : x.rows_judged) {
    if (!judged.fit.tensors.empty() && (worst == nullptr || judged.fit.misfit() > worst->fit.misfit())) worst = &judged;
  }
  if (worst == nullptr) return;
  const RowMap wrong = rows_of(e, evaluator, passes, worst->at);
  const std::string place = fmt::format("[b={} h={}]", worst->at.b, worst->at.h);
  for (const auto& [tensor, rows] : wrong) describe(tensor, "rows", rows, place, lines);
  if (x.ranking.empty() || !x.causes().empty() || !x.nearest_helps()) return;
  // What the nearest reading explains, and what it leaves.
  Reading changed;
  const RowMap left = rows_of(e, evaluator, passes_of(x, x.ranking.front(), *passes.forward, changed), worst->at);
  for (const auto& [tensor, rows] : left) {
    const auto before = wrong.find(tensor);
    const std::int64_t bad = std::count(rows.begin(), rows.end(), true);
    if (before == wrong.end() || bad == std::count(before->second.begin(), before->second.end(), true)) continue;
    lines.push_back({"where", Level::note, fmt::format("{}: under {} {} of {} rows stay wrong in {} |{}|", tensor, x.name_of(x.ranking.front()), bad, rows.size(), place, bar(rows)), ""});
  }
}

/// Keys of the first key/value head that was compared.
void locate_keys(const Evidence& e, const Explanation& x, const Evaluator& evaluator, const Passes& passes, Lines& lines) {
  if (x.sample.heads.empty()) {
    if (x.heads > 0) lines.push_back({"where", Level::note, "dk and dv were not compared: every head costs too much for that", "capture o and lse too, or fewer tokens"});
    return;
  }
  const HeadAt& head = x.sample.heads.front();
  const ColumnResult columns = evaluator.columns(passes, head);
  const bool some = !head.keys.empty();
  const std::int64_t count = some ? static_cast<std::int64_t>(head.keys.size()) : e.problem.seq_k[head.b];
  for (const auto& [id, want] : {std::pair(TensorId::dk, &columns.dk), std::pair(TensorId::dv, &columns.dv)}) {
    if (!e.of(id).present() || !want->known) continue;
    const std::int64_t width = e.of(id).extents().width;
    std::vector<bool> keys;
    std::vector<double> got(static_cast<std::size_t>(width));
    for (std::int64_t n = 0; n < count; ++n) {
      e.of(id).read(head.b, row_of_token(e.problem, id, head.b, some ? head.keys[static_cast<std::size_t>(n)] : n), head.head_kv, got);
      bool good = true;
      for (std::int64_t c = 0; c < width; ++c) {
        const auto at = static_cast<std::size_t>(n * width + c);
        good &= element_score(want->value[at], got[static_cast<std::size_t>(c)], want->tolerance[at], e.problem.output_dtype()) <= 1;
      }
      keys.push_back(!good);
    }
    // Of keys far apart no tile shows.
    const std::string place = fmt::format("[b={} h={}]", head.b, head.head_kv);
    const std::int64_t bad = std::count(keys.begin(), keys.end(), true);
    if (!some) describe(std::string(name_of(id)), "keys", keys, place, lines);
    if (some && bad > 0) lines.push_back({"where", Level::note, fmt::format("{}: {} of {} keys sampled wrong in {} |{}|", name_of(id), bad, count, place, bar(keys)), ""});
  }
}

}  // namespace

void locate_errors(const Evidence& e, const Explanation& x, Lines& lines) {
  if (x.as_contracted()) return;
  const Evaluator evaluator(e);
  const Reading contract = contract_reading(e.problem);
  const Passes passes{&contract, &contract, false};
  std::vector<std::string> tensors;
  for (const TensorFit& fit : x.contract.tensors) tensors.push_back(fmt::format("{} {}", fit.tensor, is_wrong(fit) ? "wrong" : "right"));
  lines.push_back({"where", Level::note, fmt::format("{} ({} of {} rows compared)", fmt::join(tensors, ", "), x.rows_judged.size(), x.rows), ""});
  point_to_cause(x.contract, lines);
  Map map;
  for (const auto& judged : x.rows_judged) map.add(judged.fit, judged.at.b, judged.at.h);
  for (const auto& judged : x.heads_judged) map.add(judged.fit, judged.at.b, judged.at.head_kv);
  map.say(lines);
  locate_rows(e, x, evaluator, passes, lines);
  locate_keys(e, x, evaluator, passes, lines);
}

}  // namespace attest::diagnose

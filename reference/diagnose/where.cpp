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
constexpr std::int64_t kBars = 32;

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

bool has_wrong(const Fit& fit, const char* tensor) {
  const TensorFit* one = fit.find(tensor);
  return one != nullptr && one->explained < one->total;
}

void describe(const char* tensor, const char* axis, const std::vector<bool>& wrong, const std::string& place, Lines& lines) {
  const std::int64_t bad = std::count(wrong.begin(), wrong.end(), true);
  if (bad == 0) return;
  const std::string tile = bad == static_cast<std::int64_t>(wrong.size()) ? "" : tile_of(wrong);
  lines.push_back({"where", Level::note, fmt::format("{}: {} of {} {} wrong in {} |{}|{}", tensor, bad, wrong.size(), axis, place, bar(wrong), tile.empty() ? "" : "; the errors " + tile),
                   tile.empty() ? "" : "look at what happens at the edge of a tile of that size"});
}

}  // namespace

void locate_errors(const Evidence& e, const Explanation& x, Lines& lines) {
  if (x.as_contracted()) return;
  const Problem& p = e.problem;
  const Evaluator evaluator(e);
  const Reading contract = contract_reading(p);
  const Passes passes{&contract, &contract, false};
  // Heads and sequences, by the sample.
  std::map<std::string, std::vector<std::int64_t>> of_head, of_sequence, looked_head;
  std::vector<std::int64_t> worst(2, 0);
  double most = -1;
  for (const RowAt& at : x.sample.rows) {
    const Fit fit = fit_of(evaluator, e, passes, {{at}, {}});
    if (!fit.tensors.empty() && fit.misfit() > most) {
      most = fit.misfit();
      worst = {at.b, at.h};
    }
    for (const char* tensor : {"o", "lse", "dq"}) {
      if (fit.find(tensor) == nullptr) continue;
      looked_head[tensor].resize(static_cast<std::size_t>(p.heads_q));
      of_head[tensor].resize(static_cast<std::size_t>(p.heads_q));
      of_sequence[tensor].resize(static_cast<std::size_t>(p.batch()));
      ++looked_head[tensor][at.h];
      of_head[tensor][at.h] += has_wrong(fit, tensor);
      of_sequence[tensor][at.b] += has_wrong(fit, tensor);
    }
  }
  std::vector<std::string> tensors;
  for (const TensorFit& fit : x.contract.tensors) tensors.push_back(fmt::format("{} {}", fit.tensor, fit.explained == fit.total ? "right" : "wrong"));
  lines.push_back({"where", Level::note, fmt::format("{} ({} of {} rows compared)", fmt::join(tensors, ", "), x.sample.rows.size(), x.rows), ""});
  for (const auto& [tensor, counts] : of_head) {
    std::vector<std::int64_t> right_heads;
    std::int64_t wrong_heads = 0;
    for (std::size_t h = 0; h < counts.size(); ++h) {
      if (counts[h] > 0) ++wrong_heads;
      if (counts[h] == 0 && looked_head[tensor][h] > 0) right_heads.push_back(static_cast<std::int64_t>(h));
    }
    if (wrong_heads > 0 && !right_heads.empty()) lines.push_back({"where", Level::note, fmt::format("{}: heads {} are right, {} others wrong", tensor, fmt::join(right_heads, ", "), wrong_heads), "compare the head mapping and head strides"});
  }
  // Consecutive rows of the worst head.
  const std::int64_t b = worst[0], h = worst[1], count = std::min(p.seq_q[b], kMostRows);
  std::map<std::string, std::vector<bool>> wrong;
  for (std::int64_t i = 0; i < count && most >= 0; ++i) {
    const Fit fit = fit_of(evaluator, e, passes, {{{b, h, i}}, {}});
    for (const TensorFit& one : fit.tensors) wrong[one.tensor].push_back(one.explained < one.total);
  }
  for (const auto& [tensor, rows] : wrong) describe(tensor.c_str(), "rows", rows, fmt::format("[b={} h={}]", b, h), lines);
  // Keys of the first head compared for dk and dv.
  if (x.sample.heads.empty()) {
    if (x.heads > 0) lines.push_back({"where", Level::note, "dk and dv were not compared: every head costs too much for that", "capture fewer tokens to have them looked at"});
    return;
  }
  const auto [kb, kh] = x.sample.heads.front();
  const ColumnResult columns = evaluator.columns(passes, kb, kh);
  for (const auto& [id, want] : {std::pair(TensorId::dk, &columns.dk), std::pair(TensorId::dv, &columns.dv)}) {
    if (!e.of(id).present() || !want->known) continue;
    const std::int64_t width = e.of(id).extents().width;
    std::vector<bool> keys;
    std::vector<double> got(static_cast<std::size_t>(width));
    for (std::int64_t j = 0; j < p.seq_k[kb]; ++j) {
      e.of(id).read(kb, row_of_token(p, id, kb, j), kh, got);
      bool good = true;
      for (std::int64_t c = 0; c < width; ++c) {
        const auto n = static_cast<std::size_t>(j * width + c);
        good &= element_score(want->value[n], got[static_cast<std::size_t>(c)], want->tolerance[n], p.output_dtype()) <= 1;
      }
      keys.push_back(!good);
    }
    describe(std::string(name_of(id)).c_str(), "keys", keys, fmt::format("[b={} h={}]", kb, kh), lines);
  }
}

}  // namespace attest::diagnose

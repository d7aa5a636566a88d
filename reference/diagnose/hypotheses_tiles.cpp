// SPDX-License-Identifier: Apache-2.0
// Faults of one tile of keys, for the usual tile sizes and each place of the tile.
#include <algorithm>

#include <fmt/format.h>

#include "reference/diagnose/hypotheses.h"

namespace attest::diagnose {
namespace {

constexpr std::int64_t kTiles[] = {16, 32, 64, 128, 256};
constexpr std::int64_t kMostPlaces = 8;  // tiles tried from the start; the last one too

void add(TileFault fault, std::int64_t tile, std::int64_t at, const char* name, std::string says, const char* fix,
         std::vector<Hypothesis>& list) {
  const std::string detail = at < 0 ? fmt::format("tiles of {} keys", tile) : fmt::format("tile {} of {} keys", at, tile);
  list.push_back({name, detail, says + ", " + detail, fix, [=](Reading& r) {
                    r.tile_fault = fault;
                    r.tile = tile;
                    r.at = std::max<std::int64_t>(at, 0);
                  }});
}

}  // namespace

void add_tile_hypotheses(const Evidence& evidence, std::vector<Hypothesis>& list) {
  const std::int64_t longest = evidence.problem.max_k();
  for (const std::int64_t tile : kTiles) {
    const std::int64_t count = (longest + tile - 1) / tile;
    if (count < 2) break;
    add(TileFault::last_dropped, tile, -1, "last-tile-dropped", "attention without the last key tile", "round the number of tiles up", list);
    add(TileFault::last_twice, tile, -1, "last-tile-twice", "attention with the last key tile counted twice", "clear the tile that is prefetched past the end", list);
    add(TileFault::never_rescaled, tile, -1, "never-rescaled", "attention whose accumulator is never rescaled", "multiply the accumulator by exp(old max - new max)", list);
    for (std::int64_t at = 1; at < count; ++at) {
      if (at > kMostPlaces && at + 1 < count) continue;
      add(TileFault::not_rescaled, tile, at, "not-rescaled", "attention whose accumulator is not rescaled at one tile", "rescale whenever the maximum rises", list);
      add(TileFault::stale_k, tile, at, "stale-k", "attention with the K of the tile before", "wait for the copy before the product", list);
      add(TileFault::stale_v, tile, at, "stale-v", "attention with the V of the tile before", "wait for the copy before the product", list);
      add(TileFault::stale_kv, tile, at, "stale-kv", "attention with K and V of the tile before", "wait for the copy before the product", list);
    }
  }
}

}  // namespace attest::diagnose

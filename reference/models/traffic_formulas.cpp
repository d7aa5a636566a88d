// SPDX-License-Identifier: Apache-2.0
#include "reference/models/traffic_formulas.h"

#include <string>

#include "reference/problem/invalid_request.h"

namespace attest {
namespace {

[[noreturn]] void unknown(std::string_view model) {
  throw InvalidRequest("model", std::string(model), "one of the built-in CPU kernels");
}

bool in_flash_order(std::string_view model) {
  return model == "flash" || model == "fa3" || model == "fa4" || model == "tensor-core";
}

bool in_fa1_order(std::string_view model) { return model == "fa1" || model == "block-sparse"; }

}  // namespace

Traffic forward_traffic(std::string_view model, const TrafficShape& x) {
  const std::int64_t n = x.n, nd = x.n * x.d, row_tiles = x.n / x.query_tile, key_tiles = x.n / x.key_tile;
  // Algorithm 0: Q K -> S -> P, P V -> O.
  if (model == "standard") return {.reads = 3 * nd + 2 * n * n, .writes = nd + 2 * n * n};
  // Algorithm 1: K and V once; Q, O, l, m read and O, l, m written per key tile; O, l, m written before.
  if (in_fa1_order(model))
    return {.reads = 2 * nd + key_tiles * (2 * nd + 2 * n), .writes = nd + 2 * n + key_tiles * (nd + 2 * n)};
  // K and V once per query tile; O and the logsumexp written once.
  if (in_flash_order(model)) return {.reads = nd + row_tiles * 2 * nd, .writes = nd + n};
  if (model == "two-pass") return {.reads = nd + row_tiles * 3 * nd, .writes = nd + n};
  // Every part reads Q, and writes O and a logsumexp that the merge reads.
  if (model == "split-kv")
    return {.reads = x.splits * nd + row_tiles * 2 * nd + x.splits * (nd + n), .writes = x.splits * (nd + n) + nd + n};
  // Every chunk's summary (m, l, u) is written and read.
  if (model == "rabe-staats")
    return {.reads = nd + row_tiles * 2 * nd + key_tiles * (nd + 2 * n), .writes = key_tiles * (nd + 2 * n) + nd + n};
  unknown(model);
}

Traffic backward_traffic(std::string_view model, const TrafficShape& x) {
  const std::int64_t n = x.n, nd = x.n * x.d, key_tiles = x.n / x.key_tile;
  // Algorithm 3: P dO -> dV; dO V -> dP; P dP -> dS; dS K -> dQ; dS Q -> dK.
  if (model == "standard") return {.reads = 5 * nd + 5 * n * n, .writes = 3 * nd + 2 * n * n};
  // Algorithm 4: dQ, dK, dV written before; K, V once; Q, O, dO, dQ, l, m read and dQ written per key tile.
  if (in_fa1_order(model))
    return {.reads = 2 * nd + key_tiles * (4 * nd + 2 * n), .writes = 3 * nd + key_tiles * nd + 2 * nd};
  // FA2 Algorithm 2, of all others: dQ before; delta from O and dO once; then Q, dO, dQ, L, delta per key tile.
  if (in_flash_order(model) || model == "two-pass" || model == "split-kv" || model == "rabe-staats")
    return {.reads = 2 * nd + 2 * nd + key_tiles * (3 * nd + 2 * n), .writes = nd + n + key_tiles * nd + 2 * nd};
  unknown(model);
}

std::int64_t standard_memory_bytes(std::int64_t heads, std::int64_t n, std::int64_t d) {
  return 2 * heads * (4 * n * n + 10 * n * d);
}

std::int64_t flash_memory_bytes(std::int64_t heads, std::int64_t n, std::int64_t d) {
  return 2 * heads * (n > 256 ? 13 : 11) * n * d + 4 * heads * 2 * n;
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
#include "reference/models/io_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "reference/models/call_view.h"
#include "reference/models/flash.h"
#include "reference/models/standard.h"
#include "reference/models/tiled_backward.h"
#include "reference/models/tiled_models.h"
#include "reference/problem/invalid_request.h"

namespace attest {
namespace {

void fa1_form_backward(const attest_call& call, const ModelOptions& options) {
  tiled_backward(call, options, BackwardForm::fa1);
}

struct Counted {
  const char* name;
  void (*forward)(const attest_call&, const ModelOptions&);
  void (*backward)(const attest_call&, const ModelOptions&);
};

constexpr std::array<Counted, 7> kCounted = {{{"standard", standard_forward, standard_backward},
                                              {"fa1", fa1_forward, fa1_form_backward},
                                              {"flash", flash_forward, flash_backward},
                                              {"fa3", fa3_forward, flash_backward},
                                              {"split-kv", split_kv_forward, flash_backward},
                                              {"rabe-staats", rabe_staats_forward, flash_backward},
                                              {"two-pass", two_pass_forward, flash_backward}}};

const Counted& counted(const std::string& model) {
  const auto found = std::find_if(kCounted.begin(), kCounted.end(), [&](const Counted& x) { return model == x.name; });
  if (found == kCounted.end()) throw InvalidRequest("model", model, "one of those that `attest io` counts");
  return *found;
}

/// One sequence and one query head of the problem; heads differ only through a block mask with heads of its own.
struct OneHead {
  OneHead(const attest_problem& problem, const attest_operand* block_mask, std::int64_t b, std::int64_t h)
      : abi(problem), seq_q(problem.seq_q[b]), seq_k(problem.seq_k[b]) {
    abi.batch = 1;
    abi.heads_q = abi.heads_kv = 1;
    abi.layout = ATTEST_BSHD;
    abi.seq_q = &seq_q, abi.seq_k = &seq_k;
    abi.max_q = abi.rows_q = seq_q;
    abi.max_k = abi.rows_k = seq_k;
    call.struct_size = sizeof call;
    call.problem = &abi;
    if (problem.has_block_mask && block_mask != nullptr) {
      call.block_mask = *block_mask;
      call.block_mask.data =
          static_cast<std::uint8_t*>(block_mask->data) + b * block_mask->stride_batch + h * block_mask->stride_head;
    }
  }
  OneHead(const OneHead&) = delete;
  OneHead& operator=(const OneHead&) = delete;

  attest_problem abi;
  std::int64_t seq_q, seq_k;
  attest_call call{};
};

Ledger count_head(const Counted& model, const OneHead& head, ModelOptions options, std::int64_t fast_elements) {
  Ledger ledger(fast_elements, true);
  options.ledger = &ledger;
  if (head.abi.directions & ATTEST_FORWARD) model.forward(head.call, options);
  if (head.abi.directions & ATTEST_BACKWARD) model.backward(head.call, options);
  return ledger;
}

bool fits(const std::string& model, const attest_problem& problem, std::int64_t br, std::int64_t bc,
          std::int64_t fast) {
  // A problem of one tile holds as much as any; masks only leave tiles out.
  attest_problem one = problem;
  const std::int64_t q = std::min(br, problem.max_q), k = std::min(2 * bc, problem.max_k);
  one.batch = 1, one.seq_q = &q, one.seq_k = &k, one.max_q = q, one.max_k = k;
  one.causal = ATTEST_CAUSAL_NONE, one.has_window = one.has_block_mask = 0;
  try {
    count_model(model, one, nullptr, br, bc, fast);
    return true;
  } catch (const InvalidRequest&) {
    return false;
  }
}

struct Tiles {
  std::int64_t query, key;
};

/// Counts stay exact in 64 bits, and the walk over the tiles ends.
void check_countable(const attest_problem& problem, Tiles tiles) {
  constexpr double kMostFlops = 1e18, kMostTiles = 5e7;
  const auto number = [](std::int64_t x) { return static_cast<double>(x); };
  double pairs = 0, visited = 0;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    pairs += number(problem.seq_q[b]) * number(problem.seq_k[b]) * number(problem.heads_q);
    visited += std::ceil(number(problem.seq_q[b]) / number(tiles.query)) *
               std::ceil(number(problem.seq_k[b]) / number(tiles.key)) *
               (problem.has_block_mask ? number(problem.heads_q) : 1);
  }
  if (pairs * number(problem.dim + problem.dim_v) * 7 > kMostFlops)
    throw InvalidRequest("case", fmt::format("{:.3g} pairs of query and key", pairs),
                         fmt::format("at most {:.3g} FLOPs", kMostFlops));
  if (visited > kMostTiles)
    throw InvalidRequest("case", fmt::format("{:.3g} pairs of tiles of {} x {}", visited, tiles.query, tiles.key),
                         fmt::format("at most {:.3g}; use more fast memory or shorter sequences", kMostTiles));
}

Tiles largest_tiles(const std::string& model, const attest_problem& problem, std::int64_t fast) {
  const std::int64_t width = std::max(problem.dim, problem.dim_v);
  const std::int64_t by_rule = (fast + 4 * width - 1) / (4 * width);
  const std::int64_t largest = std::max<std::int64_t>(1, std::min(by_rule, std::max(problem.max_k, problem.max_q)));
  for (std::int64_t bc = largest; bc >= 1; bc = std::min(bc - 1, bc * 15 / 16)) {
    const std::int64_t br = std::min<std::int64_t>(bc, model == "fa1" ? width : largest);
    if (fits(model, problem, br, bc, fast)) return {br, bc};
  }
  throw InvalidRequest("fast memory", fmt::format("{} elements", fast), "enough for tiles of one query and one key");
}

}  // namespace

std::vector<std::string> counted_models() {
  std::vector<std::string> names;
  for (const Counted& one : kCounted) names.emplace_back(one.name);
  return names;
}

Ledger count_model(const std::string& model, const attest_problem& problem, const attest_operand* block_mask,
                   std::int64_t query_tile, std::int64_t key_tile, std::int64_t fast_elements) {
  ModelOptions options = default_options(problem);
  options.query_tile = query_tile;
  options.key_tile = key_tile;
  const bool heads_differ = problem.has_block_mask && block_mask != nullptr;
  Ledger total;
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> alike;  // sequences by their lengths
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    if (!heads_differ) {
      ++alike[{problem.seq_q[b], problem.seq_k[b]}];
      continue;
    }
    for (std::int64_t h = 0; h < problem.heads_q; ++h)
      total.add(count_head(counted(model), OneHead(problem, block_mask, b, h), options, fast_elements), 1);
  }
  for (const auto& [lengths, times] : alike) {
    std::int64_t b = 0;
    while (problem.seq_q[b] != lengths.first || problem.seq_k[b] != lengths.second) ++b;
    total.add(count_head(counted(model), OneHead(problem, nullptr, b, 0), options, fast_elements),
              times * problem.heads_q);
  }
  return total;
}

IoReport io_report(const attest_problem& problem, const attest_operand* block_mask, const IoMachine& machine) {
  IoReport report{machine, 0, format_of(dtype_of(problem.dtype)).bytes, {}};
  report.fast_elements = machine.fast_bytes / report.element_bytes;
  if (report.fast_elements < 1)
    throw InvalidRequest("fast memory", fmt::format("{} bytes", machine.fast_bytes), "room for at least one element");
  for (const std::string& model : counted_models()) {
    IoRow row;
    row.model = model;
    const bool tiled = model != "standard";
    const Tiles tiles = tiled ? largest_tiles(model, problem, report.fast_elements) : Tiles{1, 1};
    check_countable(problem, tiled ? tiles : Tiles{problem.max_q + 1, problem.max_k + 1});
    row.ledger = count_model(model, problem, block_mask, tiles.query, tiles.key, tiled ? report.fast_elements : 0);
    if (tiled) row.query_tile = tiles.query, row.key_tile = tiles.key;
    row.bytes = static_cast<double>(row.ledger.bytes(report.element_bytes));
    const auto flops = static_cast<double>(row.ledger.matmul_flops());
    row.intensity = row.bytes > 0 ? flops / row.bytes : 0;
    row.seconds = std::max(row.bytes / machine.bandwidth, flops / machine.rate);
    report.rows.push_back(std::move(row));
  }
  return report;
}

std::string print_table(const IoReport& report) {
  std::string text = fmt::format(
      "fast memory {} elements of {} bytes; {:.4g} GB/s; {:.4g} TFLOP/s; time is the floor that these allow\n"
      "{:<12} {:>11} {:>10} {:>10} {:>12} {:>12} {:>9} {:>10} {:>12} {:>10}\n",
      report.fast_elements, report.element_bytes, report.machine.bandwidth / 1e9, report.machine.rate / 1e12, "model",
      "tiles", "read GB", "write GB", "matmul GF", "other GF", "FLOP/B", "held", "extra MB", "floor ms");
  for (const IoRow& row : report.rows) {
    const Traffic total = row.ledger.total();
    const double share = row.bytes / static_cast<double>(std::max<std::int64_t>(1, total.reads + total.writes));
    text += fmt::format("{:<12} {:>11} {:>10.4g} {:>10.4g} {:>12.5g} {:>12.5g} {:>9.4g} {:>10} {:>12.5g} {:>10.4g}\n",
                        row.model, row.key_tile > 0 ? fmt::format("{}x{}", row.query_tile, row.key_tile) : "none",
                        static_cast<double>(total.reads) * share / 1e9, static_cast<double>(total.writes) * share / 1e9,
                        static_cast<double>(row.ledger.matmul_flops()) / 1e9,
                        static_cast<double>(row.ledger.other_flops()) / 1e9, row.intensity,
                        row.key_tile > 0 ? fmt::format("{}", row.ledger.peak_fast()) : "-",
                        static_cast<double>(row.ledger.extra_slow() * report.element_bytes) / 1e6, row.seconds * 1e3);
  }
  return text;
}

std::string print_ledger(const IoRow& row) {
  std::string text = fmt::format("{}: elements by phase and tensor\n", row.model);
  for (const PhaseCounts& phase : row.ledger.phases()) {
    if (phase.total().reads + phase.total().writes == 0) continue;
    text += fmt::format("  {}\n", phase.name);
    for (std::size_t tensor = 0; tensor < kMovedCount; ++tensor)
      if (phase.slow[tensor].reads + phase.slow[tensor].writes > 0)
        text += fmt::format("    {:<8} read {:>16} write {:>16}\n", name_of(static_cast<Moved>(tensor)),
                            phase.slow[tensor].reads, phase.slow[tensor].writes);
  }
  return text;
}

}  // namespace attest

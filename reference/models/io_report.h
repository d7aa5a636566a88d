// SPDX-License-Identifier: Apache-2.0
// What every model moves and computes for a problem on a machine of two memory levels, without running it: the models
// walk their loops with a counting ledger. Times are floors: the larger of bytes / bandwidth and FLOPs / rate.
//
//   IoReport report = io_report(problem, nullptr, {.fast_bytes = 192 << 10});  print_table(report)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/models/ledger.h"
#include "reference/problem/kernel_abi.h"

namespace attest {

struct IoMachine {
  std::int64_t fast_bytes = 192 << 10;  // of one core; A100: 192 KiB
  double bandwidth = 1.555e12;          // bytes a second between slow memory and the core; A100-40GB
  double rate = 312e12;                 // matrix FLOPs a second; A100, f16
};

struct IoRow {
  std::string model;
  std::int64_t query_tile = 0, key_tile = 0;  // 0: no tiles (standard)
  Ledger ledger;                              // all heads and sequences, forward and backward as the problem asks
  double bytes = 0;
  double intensity = 0;  // FLOPs per byte
  double seconds = 0;    // floor
};

struct IoReport {
  IoMachine machine;
  std::int64_t fast_elements = 0;  // in the problem's type
  int element_bytes = 0;
  std::vector<IoRow> rows;
};

/// The largest tiles that fit: the paper's rule Bc = ceil(M / 4d), Br = min(Bc, d) for FA1, square tiles for others,
/// shrunk until the tiles of every direction asked for are held. Throws InvalidRequest if none fit. `block_mask` is
/// read where the problem has one.
IoReport io_report(const attest_problem& problem, const attest_operand* block_mask, const IoMachine& machine);

/// One model with stated tiles; throws InvalidRequest where they do not fit `fast_elements` (0: no limit).
Ledger count_model(const std::string& model, const attest_problem& problem, const attest_operand* block_mask,
                   std::int64_t query_tile, std::int64_t key_tile, std::int64_t fast_elements);
std::vector<std::string> counted_models();

std::string print_table(const IoReport& report);
/// Traffic by tensor and phase of one row.
std::string print_ledger(const IoRow& row);
/// A stand-alone SVG of bytes against the size of fast memory (left) and against the number of queries and keys (right).
std::string draw_traffic(const attest_problem& problem, const IoMachine& machine);

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// The parts of exact_attention, each a sweep over the whole problem. They share these sizes, which fix the order
// of every sum; threads only decide who computes which block.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/oracle/exact.h"
#include "reference/oracle/scores.h"

namespace attest {

inline constexpr std::int64_t kBlockRows = 64;    // queries of one block
inline constexpr std::int64_t kTileKeys = 128;    // keys of one tile
inline constexpr std::int64_t kChunkKeys = 1024;  // keys whose dk and dv are summed in one go
inline constexpr std::int64_t kMinUnits = 16;     // pieces of work wanted at least
inline constexpr double kThreadedFlops = 4e6;     // below this much work, forking threads costs more than it saves

/// One sequence and query head.
struct HeadSlice {
  std::int64_t b;
  std::int64_t h;
  std::int64_t head_kv;
  std::int64_t first_q;  // its first token of q
  std::int64_t first_k;
  std::int64_t seq_q;
  std::int64_t seq_k;
};
HeadSlice head_slice(const Problem& problem, std::int64_t b, std::int64_t h);

/// Queries [i, i + count) of a head.
struct RowBlock {
  HeadSlice head;
  std::int64_t i;
  std::int64_t count;
};
/// All blocks of query head h of sequence b, appended.
void append_row_blocks(const HeadSlice& head, std::vector<RowBlock>& blocks);

/// Multiply-adds times two of `matmuls` products over all pairs of a query and a key.
double flops(const Problem& problem, int matmuls);

/// o and lse of every row.
void sweep_forward(const Problem& problem, const Inputs& inputs, const Scores& scores, Exact& exact);
/// dq, dk and dv, given o and lse.
void sweep_backward(const Problem& problem, const Inputs& inputs, const Scores& scores, Exact& exact);
/// d_bias, given o and lse.
void sweep_bias_gradient(const Problem& problem, const Inputs& inputs, const Scores& scores, Exact& exact);

/// All of it, one row and one key at a time, for inputs that are not finite or so large that a product could
/// overflow: hidden entries are skipped, never multiplied.
void sweep_carefully(const Problem& problem, const Inputs& inputs, const Scores& scores, Exact& exact);

}  // namespace attest

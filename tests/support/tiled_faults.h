// SPDX-License-Identifier: Apache-2.0
// A plain tiled attention in float32 registers with one fault at a time: what the fault tables of docs/numerics.md are made
// with. It computes from Inputs, not through the ABI, and takes masks and dropout from the oracle: only the planted fault
// may be wrong.
#pragma once

#include <span>
#include <string_view>

#include "reference/oracle/exact.h"

namespace attest::tiled_faults {

enum class Fault {
  none,
  // structure
  o_not_rescaled, l_not_rescaled, causal_sees_next, causal_misses_own, key_dropped, key_dropped_from_pv, key_twice,
  scale_off, dropout_not_scaled, l_after_dropout, wrong_kv_head, lse_log2, no_maximum, stale_v_tile, stale_k_tile,
  window_one_more, window_one_less, one_padding_key, many_padding_keys, delta_of_next_row, dq_tile_lost, query_row_skipped,
  split_unweighted, mask_ignored, dropout_of_next_head, dp_not_dropped, softcap_slope_missing,
  // precision
  o_in_input_type, l_in_f16, exp_in_bf16, p_in_e4m3, output_truncated, delta_in_input_type
};

struct FaultName {
  Fault fault;
  std::string_view name;
  bool structural;
};
std::span<const FaultName> faults();

inline constexpr std::int64_t kFaultyTile = 64;  // keys and queries of one tile

/// Outputs rounded to their types. P and dS are rounded to the type of q.
Exact faulty_attention(const Problem& problem, const Inputs& inputs, Fault fault);

/// Attention with every intermediate rounded to the type of q, as a framework's reference in that type gives it.
Exact low_precision_attention(const Problem& problem, const Inputs& inputs);

}  // namespace attest::tiled_faults

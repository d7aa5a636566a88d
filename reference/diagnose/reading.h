// SPDX-License-Identifier: Apache-2.0
// A reading: one way to understand an attention call, right or wrong. The contract's is the default; a hypothesis
// changes one thing in it. Each field beyond `problem` is a mistake the Problem itself cannot say.
#pragma once

#include <cstdint>

#include "reference/diagnose/evidence.h"
#include "reference/problem/problem.h"

namespace attest::diagnose {

enum class HeadsAndRows : std::uint8_t { as_stored, attend_over_heads, flat_order };
enum class BiasUse : std::uint8_t { own, of_first_head, of_first_sequence, transposed };
enum class EmptyRow : std::uint8_t { zero, nan, mean };
enum class LseKind : std::uint8_t { natural, base2, unscaled, max_unscaled, unmasked, after_dropout, without_max };
enum class KeepCounter : std::uint8_t { contract, rows_and_columns_swapped, linear, head_major };
enum class TileFault : std::uint8_t {
  none, not_rescaled, never_rescaled, last_dropped, last_twice, stale_k, stale_v, stale_kv
};
enum class GroupSum : std::uint8_t { all, first, last };  // of what a gradient sums over

struct Reading {
  Problem problem;  // as it is understood: masks, lengths, padding side, scale, softcap, dropout

  // Where rows are read.
  bool heads_modulo = false;  // query head h reads h mod Hkv
  std::int64_t k_head = 0;    // added to the key head, cyclic
  std::int64_t v_head = 0;
  std::int64_t v_batch = 0;
  bool swap_qk = false;
  bool transpose_k = false;  // K of a head [Sk, D] read as if stored [D, Sk]
  HeadsAndRows heads_and_rows = HeadsAndRows::as_stored;
  std::int64_t shift_q = 0;  // rows
  std::int64_t shift_k = 0;
  bool merged = false;  // packed sequences taken for one

  // Masks.
  std::int64_t causal_less = 0;  // keys that each query sees fewer, at the diagonal

  // Scores.
  bool cap_before_scale = false;
  double score_factor = 1;
  double alibi_sign = 1;
  bool alibi_top_left = false;
  BiasUse bias = BiasUse::own;

  // Softmax.
  EmptyRow empty_row = EmptyRow::zero;
  bool empty_lse_positive = false;
  LseKind lse = LseKind::natural;
  TileFault tile_fault = TileFault::none;
  std::int64_t tile = 64;  // keys
  std::int64_t at = 0;     // index of the tile

  // Dropout.
  int keep_scale_power = 1;  // of 1 / (1 - p)
  bool keep_scale_of_p = false;  // 1 / p instead
  bool keep_p = false;           // keeps a share p instead of 1 - p
  std::int64_t keep_head = 0;
  KeepCounter counter = KeepCounter::contract;

  // Backward alone.
  std::int64_t delta_row = 0;  // delta of row i + this
  std::int64_t delta_head = 0;
  bool delta_missing = false;
  bool d_lse_ignored = false;
  bool cap_slope_missing = false;
  bool dq_unscaled = false;
  bool dk_unscaled = false;
  bool dv_undropped = false;
  GroupSum group = GroupSum::all;  // dk and dv, over the query heads of a group
  GroupSum bias_sum = GroupSum::all;  // dbias, over the sequences and heads that share it
  bool d_bias_scaled = false;
  bool d_bias_in_softcap = false;  // multiplied by the derivative of the softcap

  /// False where dk and dv cannot be attributed to keys: their rows were read elsewhere.
  bool columns_follow() const {
    return !swap_qk && !transpose_k && heads_and_rows == HeadsAndRows::as_stored && shift_k == 0 && shift_q == 0 &&
           !merged && v_batch == 0 && tile_fault < TileFault::stale_k;
  }
  /// True where keys are read as the contract has it, so that they can be shared between readings.
  bool keys_as_stored(const Problem& contract) const {
    return !swap_qk && !transpose_k && heads_and_rows == HeadsAndRows::as_stored && shift_k == 0 && !merged &&
           v_batch == 0 && tile_fault < TileFault::stale_k && problem.pad == contract.pad &&
           problem.seq_k == contract.seq_k;
  }
};

Reading contract_reading(const Problem& problem);

/// Key/value heads that query head h takes k and v from.
std::int64_t key_head(const Reading& reading, std::int64_t h);
std::int64_t value_head(const Reading& reading, std::int64_t h);

/// 1 where dropout keeps (b, h, i, j), else 0.
double keeps(const Reading& reading, const RowAt& at, std::int64_t j);
/// What a kept weight is multiplied with.
double keep_scale(const Reading& reading);

}  // namespace attest::diagnose

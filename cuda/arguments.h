// SPDX-License-Identifier: Apache-2.0
// What every kernel of this folder gets: one plain struct of views, sizes and switches, passed by value. The host
// fills it from an attest_call (arguments.cpp); sequence.cuh reads one sequence out of it on the device.
#pragma once

#include <cstdint>
#include <string>

#include "reference/problem/kernel_abi.h"

namespace attest::cuda {

/// Element (b, row r, head h, column c) is at data[b * batch + r * seq + h * head + c]; batch is 0 in packed layouts. In
/// paged k and v, b is the page and r the token of the page.
struct TensorView {
  void* data = nullptr;
  std::int64_t batch = 0;
  std::int64_t seq = 0;
  std::int64_t head = 0;
};

/// Element (b, h, i, j) is at data[b * batch + h * head + i * query + j * key].
struct OperandView {
  void* data = nullptr;
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t query = 0;
  std::int64_t key = 0;
};

struct Arguments {
  TensorView q;                         // [B, Sq, Hq, D]
  TensorView k;                         // [B, Sk, Hkv, D]
  TensorView v;                         // [B, Sk, Hkv, Dv]
  TensorView o;                         // [B, Sq, Hq, Dv]
  TensorView lse;                       // [B, Hq, Sq]; f32
  TensorView d_o;                       // [B, Sq, Hq, Dv]
  TensorView d_lse;                     // [B, Hq, Sq]; f32, data null where absent
  TensorView dq;                        // [B, Sq, Hq, D]
  TensorView dk;                        // [B, Sk, Hkv, D]
  TensorView dv;                        // [B, Sk, Hkv, Dv]
  OperandView bias;                     // [B, Hq, Sq, Sk], strides 0 where broadcast
  OperandView d_bias;                   // f32
  OperandView mask;                     // u8, 1 shows
  OperandView block_mask;               // u8, one per tile
  const float* alibi_slopes = nullptr;  // [Hq]
  const std::int32_t* cu_q = nullptr;   // [B + 1]; null in padded layouts
  const std::int32_t* cu_k = nullptr;
  const std::int32_t* seq_q = nullptr;  // [B]
  const std::int32_t* seq_k = nullptr;
  const std::int32_t* page_table = nullptr;  // [B, page_table_stride]; null where k and v are not paged
  std::int64_t page_table_stride = 0;
  void* workspace = nullptr;

  std::int64_t rows_q = 0;
  std::int64_t rows_k = 0;
  std::int32_t batch = 0;
  std::int32_t heads_q = 0;
  std::int32_t heads_kv = 0;
  std::int32_t group = 0;  // Hq / Hkv
  std::int32_t max_q = 0;
  std::int32_t max_k = 0;
  std::int32_t dim = 0;
  std::int32_t dim_v = 0;
  std::int32_t dtype = 0;
  std::int32_t out_dtype = 0;
  std::int32_t bias_dtype = 0;
  std::int32_t page_size = 1;
  bool rare = false;  // has_rare_features() or scale <= 0
  bool pad_left = false;
  bool vectorised = false;      // q, k, v, d_o: 16-byte rows, widths multiples of 8 (16-bit elements)
  bool vectorised_out = false;  // o, dq, dk, dv likewise

  float scale = 1;
  float softcap = 0;  // 0: off
  std::int32_t causal = 0;
  std::int32_t window_align = 0;
  std::int64_t window_left = -1;  // -1: no limit
  std::int64_t window_right = -1;
  std::int64_t block_rows = 0;
  std::int64_t block_cols = 0;

  bool has_dropout = false;
  bool deterministic = false;
  float keep_scale = 1;          // 1 / (1 - p)
  std::uint64_t keep_below = 0;  // a random word below this keeps; 2^32 keeps all
  std::uint64_t dropout_seed = 0;
  std::uint32_t dropout_offset = 0;
};

Arguments arguments_of(const attest_call& call);

/// Why the contract forbids the problem, or a limit that every kernel here shares forbids it; empty if nothing does.
std::string refusal_of(const attest_problem& problem);

/// Why no kernel here can store the output or read the bias: their types; empty if they can.
std::string refusal_of_types(const attest_problem& problem);

/// Answers attest_kernel.supports.
std::int32_t answer_support(const std::string& refusal, char* reason, std::size_t reason_bytes);

/// Explicit mask, block mask, bias, ALiBi, softcap or dropout: what the plain fast path leaves out.
bool has_rare_features(const attest_problem& problem);

/// has_rare_features(), or a scale <= 0: a maximum taken before the multiplication would be the wrong one.
bool needs_rare(const attest_problem& problem);

/// Rows in the f32 work arrays that hold one number per query row and head (delta, partial LSE).
std::int64_t work_rows(const attest_problem& problem);

}  // namespace attest::cuda

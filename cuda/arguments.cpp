// SPDX-License-Identifier: Apache-2.0
#include "cuda/arguments.h"

#include <cmath>
#include <limits>

#include "cuda/error.h"

namespace attest::cuda {
namespace {

constexpr std::int64_t kMaxInt = std::numeric_limits<std::int32_t>::max();

TensorView view_of(const attest_tensor& tensor, bool packed) {
  return {tensor.data, packed ? 0 : tensor.stride_batch, tensor.stride_seq, tensor.stride_head};
}

TensorView lse_view_of(const attest_tensor& tensor, bool packed) {
  return {tensor.data, packed ? 0 : tensor.stride_batch, 1, tensor.stride_head};
}

/// Rows begin at multiples of 16 bytes, for 16-bit elements.
bool has_aligned_rows(const TensorView& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0 && tensor.batch % 8 == 0 && tensor.seq % 8 == 0 &&
         tensor.head % 8 == 0;
}

OperandView view_of(const attest_operand& operand) {
  return {operand.data, operand.stride_batch, operand.stride_head, operand.stride_query, operand.stride_key};
}

std::string refuse_lengths(const attest_problem& problem) {
  std::int64_t sum_q = 0;
  std::int64_t sum_k = 0;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const std::int64_t sq = problem.seq_q[b];
    const std::int64_t sk = problem.seq_k[b];
    if (sq < 0 || sk < 0) return "a sequence length is negative";
    if (sq > problem.max_q || sk > problem.max_k) return "a max length is below a real one";
    sum_q += sq;
    sum_k += sk;
  }
  const bool packed = problem.layout == ATTEST_THD;
  if ((packed ? sum_q : problem.max_q) > problem.rows_q || (packed ? sum_k : problem.max_k) > problem.rows_k) {
    return "the offsets pass the end of a tensor";
  }
  if (problem.max_q > kMaxInt / 2 || problem.max_k > kMaxInt / 2) return "a sequence of more than 2^30 tokens";
  if (packed && (problem.rows_q > kMaxInt || problem.rows_k > kMaxInt)) return "more than 2^31 - 1 packed tokens";
  return {};
}

}  // namespace

std::string refusal_of(const attest_problem& problem) {
  if (problem.batch < 1 || problem.heads_q < 1 || problem.heads_kv < 1) return "batch and heads must be at least 1";
  if (problem.heads_q % problem.heads_kv != 0) return "query heads must be a multiple of key/value heads";
  if (problem.batch > kMaxInt / problem.heads_q) return "more than 2^31 - 1 sequences times heads";
  if (problem.dim < 1 || problem.dim_v < 1) return "widths must be at least 1";
  if (problem.layout < ATTEST_BSHD || problem.layout > ATTEST_THD) return "unknown layout";
  if (!std::isfinite(problem.scale)) return "scale must be finite";
  if (!(problem.softcap >= 0) || std::isinf(problem.softcap)) return "softcap must be finite and not negative";
  if (problem.has_dropout && !(problem.dropout_p >= 0 && problem.dropout_p < 1)) return "dropout p must be in [0, 1)";
  if (problem.has_block_mask && (problem.block_rows < 1 || problem.block_cols < 1)) return "block mask tiles are empty";
  if (problem.page_size < 0) return "page size must not be negative";
  if (problem.page_size > 0 && (problem.directions & ATTEST_BACKWARD) != 0) return "paged keys are for the forward only";
  if (problem.page_size > kMaxInt || problem.pages > kMaxInt) return "more than 2^31 - 1 pages or tokens of a page";
  return refuse_lengths(problem);
}

std::string refusal_of_types(const attest_problem& problem) {
  const auto stored = [](std::int32_t dtype) { return dtype >= ATTEST_F32 && dtype <= ATTEST_F8E5M2; };
  if (!stored(problem.out_dtype)) return "output types are f32, f16, bf16 and f8";
  if (problem.has_bias && !stored(problem.bias_dtype)) return "bias types are f32, f16, bf16 and f8";
  return {};
}

std::int32_t answer_support(const std::string& refusal, char* reason, std::size_t reason_bytes) {
  write_message(refusal, reason, reason_bytes);
  return refusal.empty() ? 1 : 0;
}

bool has_rare_features(const attest_problem& problem) {
  return problem.has_mask || problem.has_block_mask || problem.has_bias || problem.has_alibi || problem.softcap != 0 ||
         problem.has_dropout;
}

bool needs_rare(const attest_problem& problem) { return has_rare_features(problem) || !(problem.scale > 0); }

std::int64_t work_rows(const attest_problem& problem) {
  return problem.heads_q * (problem.layout == ATTEST_THD ? problem.rows_q : problem.batch * problem.max_q);
}

Arguments arguments_of(const attest_call& call) {
  const attest_problem& problem = *call.problem;
  const bool packed = problem.layout == ATTEST_THD;
  const bool paged = problem.page_size > 0;
  Arguments a;
  a.q = view_of(call.q, packed);
  a.k = view_of(call.k, packed && !paged);
  a.v = view_of(call.v, packed && !paged);
  a.o = view_of(call.o, packed);
  a.lse = lse_view_of(call.lse, packed);
  a.d_o = view_of(call.d_o, packed);
  a.d_lse = lse_view_of(call.d_lse, packed);
  a.dq = view_of(call.dq, packed);
  a.dk = view_of(call.dk, packed);
  a.dv = view_of(call.dv, packed);
  a.bias = view_of(call.bias);
  a.d_bias = view_of(call.d_bias);
  a.mask = view_of(call.mask);
  a.block_mask = view_of(call.block_mask);
  if (!problem.has_bias) a.bias.data = nullptr;
  if (!problem.has_mask) a.mask.data = nullptr;
  if (!problem.has_block_mask) a.block_mask.data = nullptr;
  if (!problem.has_d_lse) a.d_lse.data = nullptr;
  a.alibi_slopes = problem.has_alibi ? call.alibi_slopes : nullptr;
  a.cu_q = packed ? call.cu_q : nullptr;
  a.cu_k = packed ? call.cu_k : nullptr;
  a.seq_q = call.seq_q;
  a.seq_k = call.seq_k;
  a.page_table = paged ? call.page_table : nullptr;
  a.page_table_stride = call.page_table_stride;
  a.page_size = paged ? static_cast<std::int32_t>(problem.page_size) : 1;
  a.rare = needs_rare(problem);
  a.workspace = call.workspace;

  a.rows_q = problem.rows_q;
  a.rows_k = problem.rows_k;
  a.batch = static_cast<std::int32_t>(problem.batch);
  a.heads_q = static_cast<std::int32_t>(problem.heads_q);
  a.heads_kv = static_cast<std::int32_t>(problem.heads_kv);
  a.group = a.heads_q / a.heads_kv;
  a.max_q = static_cast<std::int32_t>(problem.max_q);
  a.max_k = static_cast<std::int32_t>(problem.max_k);
  a.dim = static_cast<std::int32_t>(problem.dim);
  a.dim_v = static_cast<std::int32_t>(problem.dim_v);
  a.dtype = problem.dtype;
  a.out_dtype = problem.out_dtype;
  a.bias_dtype = problem.bias_dtype;
  a.pad_left = problem.pad_side == ATTEST_PAD_LEFT;

  const bool chunked = a.dim % 8 == 0 && a.dim_v % 8 == 0;
  a.vectorised =
      chunked && has_aligned_rows(a.q) && has_aligned_rows(a.k) && has_aligned_rows(a.v) && has_aligned_rows(a.d_o);
  a.vectorised_out =
      chunked && has_aligned_rows(a.o) && has_aligned_rows(a.dq) && has_aligned_rows(a.dk) && has_aligned_rows(a.dv);

  a.scale = static_cast<float>(problem.scale);
  a.softcap = static_cast<float>(problem.softcap);
  a.causal = problem.causal;
  if (problem.has_window) {
    a.window_align = problem.window_align;
    a.window_left = problem.window_left;
    a.window_right = problem.window_right;
  }
  a.block_rows = problem.block_rows;
  a.block_cols = problem.block_cols;
  a.deterministic = problem.deterministic != 0;
  a.has_dropout = problem.has_dropout != 0;
  if (a.has_dropout) {
    const double keep = 1.0 - problem.dropout_p;
    a.keep_scale = static_cast<float>(1.0 / keep);
    a.keep_below = static_cast<std::uint64_t>(std::ceil(std::ldexp(keep, 32)));
    a.dropout_seed = problem.dropout_seed;
    a.dropout_offset = static_cast<std::uint32_t>(problem.dropout_offset);
  }
  return a;
}

}  // namespace attest::cuda

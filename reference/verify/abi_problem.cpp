// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/abi_problem.h"

#include "reference/problem/layout.h"

namespace attest {
namespace {

// The enumerations of the ABI and of Problem have the same order, which these lines hold fast.
static_assert(static_cast<int>(Dtype::f64) == ATTEST_F64 && static_cast<int>(Dtype::f32) == ATTEST_F32);
static_assert(static_cast<int>(Dtype::f16) == ATTEST_F16 && static_cast<int>(Dtype::bf16) == ATTEST_BF16);
static_assert(static_cast<int>(Dtype::f8e4m3) == ATTEST_F8E4M3 && static_cast<int>(Dtype::f8e5m2) == ATTEST_F8E5M2);
static_assert(static_cast<int>(Layout::bshd) == ATTEST_BSHD && static_cast<int>(Layout::bhsd) == ATTEST_BHSD);
static_assert(static_cast<int>(Layout::thd) == ATTEST_THD);
static_assert(static_cast<int>(PadSide::left) == ATTEST_PAD_LEFT);
static_assert(static_cast<int>(Causal::top_left) == ATTEST_CAUSAL_TOP_LEFT);
static_assert(static_cast<int>(Causal::bottom_right) == ATTEST_CAUSAL_BOTTOM_RIGHT);

Causal window_alignment(const Problem& problem) {
  if (problem.window->alignment != Causal::none) return problem.window->alignment;
  return problem.causal == Causal::none ? Causal::bottom_right : problem.causal;
}

}  // namespace

std::int32_t abi_directions(Direction direction) {
  switch (direction) {
    case Direction::forward: return ATTEST_FORWARD;
    case Direction::backward: return ATTEST_BACKWARD;
    case Direction::both: break;
  }
  return ATTEST_FORWARD | ATTEST_BACKWARD;
}

AbiProblem::AbiProblem(const Problem& problem) : seq_q_(problem.seq_q), seq_k_(problem.seq_k) {
  abi_.struct_size = sizeof(attest_problem);
  abi_.directions = abi_directions(problem.direction);
  abi_.dtype = static_cast<std::int32_t>(problem.dtype);
  abi_.out_dtype = static_cast<std::int32_t>(problem.output_dtype());
  abi_.lse_dtype = static_cast<std::int32_t>(problem.lse_dtype());
  abi_.layout = static_cast<std::int32_t>(problem.layout);
  abi_.pad_side = static_cast<std::int32_t>(problem.pad);
  abi_.batch = problem.batch();
  abi_.seq_q = seq_q_.data();
  abi_.seq_k = seq_k_.data();
  abi_.max_q = problem.max_q();
  abi_.max_k = problem.max_k();
  abi_.rows_q = problem.rows_q();
  abi_.rows_k = problem.rows_k();
  abi_.heads_q = problem.heads_q;
  abi_.heads_kv = problem.heads_kv;
  abi_.dim = problem.dim;
  abi_.dim_v = problem.width_v();
  abi_.scale = problem.effective_scale();
  abi_.softcap = problem.effective_softcap();
  abi_.causal = static_cast<std::int32_t>(problem.causal);
  abi_.window_left = -1;
  abi_.window_right = -1;
  if (problem.window) {
    abi_.has_window = 1;
    abi_.window_left = problem.window->left;
    abi_.window_right = problem.window->right;
    abi_.window_align = static_cast<std::int32_t>(window_alignment(problem));
  }
  abi_.has_bias = problem.bias.has_value();
  abi_.bias_dtype = static_cast<std::int32_t>(problem.bias_dtype());
  abi_.has_alibi = problem.alibi;
  abi_.has_mask = problem.mask.has_value();
  abi_.has_block_mask = problem.block.has_value();
  if (problem.block) {
    abi_.block_rows = problem.block->rows;
    abi_.block_cols = problem.block->cols;
  }
  abi_.has_dropout = problem.dropout.has_value();
  if (problem.dropout) {
    abi_.dropout_p = problem.effective_dropout();
    abi_.dropout_seed = problem.dropout->seed;
    abi_.dropout_offset = problem.dropout->offset;
  }
  abi_.has_d_lse = problem.d_lse;
  abi_.wants_d_bias = problem.d_bias;
  abi_.page_size = problem.page_size;
  abi_.pages = problem.page_size > 0 ? pages_in_pool(problem) : 0;
}

}  // namespace attest

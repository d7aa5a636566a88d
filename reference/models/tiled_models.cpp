// SPDX-License-Identifier: Apache-2.0
// The kernel records of the tiled models: which forward, which backward, which parameters, and what they declare.
#include "reference/models/tiled_models.h"

#include <algorithm>

#include "reference/models/builtin_call.h"
#include "reference/models/flash.h"
#include "reference/models/tiled_backward.h"

namespace attest {
namespace {

void fa1_backward(const attest_call& call, const ModelOptions& options) {
  tiled_backward(call, options, BackwardForm::fa1);
}

ModelOptions fa1_options(const attest_problem& problem) {
  ModelOptions options = default_options(problem);
  options.query_tile = 32;
  options.key_tile = 64;
  return options;
}

/// Every step multiplies O by l, rescales it, adds and divides: twice the roundings that one rescale per tile declares.
void fa1_declares(const attest_problem& problem, attest_numerics& numerics) {
  numerics.key_tile = std::max<std::int64_t>(1, fa1_options(problem).key_tile / 2);
}

/// Tiles that are blocks of the mask, cut so that they stay tiles: a block of more than 128 is taken in parts.
ModelOptions block_sparse_options(const attest_problem& problem) {
  ModelOptions options = fa1_options(problem);
  if (!problem.has_block_mask) return options;
  options.query_tile = std::min<std::int64_t>(problem.block_rows, 128);
  options.key_tile = std::min<std::int64_t>(problem.block_cols, 128);
  return options;
}

void block_sparse_declares(const attest_problem& problem, attest_numerics& numerics) {
  numerics.key_tile = std::max<std::int64_t>(1, block_sparse_options(problem).key_tile / 2);
}

ModelOptions fa3_options(const attest_problem& problem) {
  ModelOptions options = default_options(problem);
  options.query_tile = 64;
  options.key_tile = 48;
  options.p_tile_scale = options.p_offset != 0;  // f8 problems: at least the declared 2^8
  return options;
}

/// The threshold of the published code: 2^8 for 16-bit types, none for 8-bit ones. While the maximum lags, P is up to
/// 2^8: times V near the end of the range of bf16 or f32 that overflows float, so P is kept times 2^-8 there, which the
/// published code does not do.
ModelOptions fa4_options(const attest_problem& problem) {
  ModelOptions options = default_options(problem);
  options.query_tile = 32;
  options.key_tile = 32;
  options.rescale_threshold = options.p_offset != 0 ? 0 : 8;
  if (problem.dtype == ATTEST_BF16 || problem.dtype == ATTEST_F32) options.p_offset = -8;
  return options;
}

ModelOptions split_options(const attest_problem& problem) {
  ModelOptions options = default_options(problem);
  options.query_tile = 16;
  options.key_tile = 32;
  return options;
}

/// Merging parts rescales once more per part, and the sums of parts have their own logsumexp roundings.
void split_declares(const attest_problem& problem, attest_numerics& numerics) {
  numerics.key_tile = split_options(problem).key_tile / 2;
}

ModelOptions rabe_options(const attest_problem& problem) {
  ModelOptions options = default_options(problem);
  options.query_tile = 24;
  options.key_tile = 80;
  return options;
}

ModelOptions two_pass_options(const attest_problem& problem) {
  ModelOptions options = default_options(problem);
  options.query_tile = 48;
  options.key_tile = 64;
  options.p_offset = 0;
  options.p_forward = options.p_backward;  // as `standard`: normalised P in e4m3 would flush most of a long row
  return options;
}

void two_pass_declares(const attest_problem& problem, attest_numerics& numerics) {
  numerics.p_normalised = 1;
  numerics.p_dtype = attest_dtype_of(two_pass_options(problem).p_forward);
}

/// Hopper's 16-bit tensor cores as they were probed: 16 products, 25 fraction bits, truncated.
constexpr attest_accumulation kHopper = {16, 25, 0x1p-23, 1, 0};

ModelOptions tensor_core_options(const attest_problem& problem) {
  ModelOptions options = default_options(problem);
  options.accumulation = kHopper;
  return options;
}

std::string tensor_core_declines(const attest_problem& problem) {
  return problem.dtype == ATTEST_F16 || problem.dtype == ATTEST_BF16 ? "" : "dtype: f16 and bf16 only";
}

void tensor_core_declares(const attest_problem&, attest_numerics& numerics) {
  numerics.qk = numerics.pv = numerics.bwd = kHopper;
}

}  // namespace

constinit const attest_kernel kFa1Kernel = builtin_kernel<fa1_forward, fa1_backward, fa1_options, fa1_declares>(
    "fa1", "FlashAttention: key tiles outer, O normalised and written back at every step");
constinit const attest_kernel kBlockSparseKernel =
    builtin_kernel<fa1_forward, fa1_backward, block_sparse_options, block_sparse_declares>(
        "block-sparse", "FlashAttention Algorithm 5: tiles are the blocks of the mask, hidden ones left out");
constinit const attest_kernel kFa3Kernel = builtin_kernel<fa3_forward, flash_backward, fa3_options>(
    "fa3", "FlashAttention-3 order: two stages in flight; FP8 P with a scale per tile");
constinit const attest_kernel kFa4Kernel = builtin_kernel<flash_forward, flash_backward, fa4_options>(
    "fa4", "FlashAttention-4: the maximum is followed only when it rises by more than 2^8");
constinit const attest_kernel kSplitKvKernel =
    builtin_kernel<split_kv_forward, flash_backward, split_options, split_declares>(
        "split-kv", "FlashDecoding: four parts of the keys alone, then a merge");
constinit const attest_kernel kRabeStaatsKernel = builtin_kernel<rabe_staats_forward, flash_backward, rabe_options>(
    "rabe-staats", "Rabe and Staats: chunks summarised alone, merged at the end");
constinit const attest_kernel kTwoPassKernel =
    builtin_kernel<two_pass_forward, flash_backward, two_pass_options, two_pass_declares>(
        "two-pass", "two passes over the keys: row statistics, then normalised P times V");
constinit const attest_kernel kTensorCoreKernel =
    builtin_kernel<flash_forward, flash_backward, tensor_core_options, tensor_core_declares, tensor_core_declines>(
        "tensor-core", "the flash model adding as Hopper tensor cores do: 16 products, 25 bits, truncated");

}  // namespace attest

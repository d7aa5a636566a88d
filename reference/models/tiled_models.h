// SPDX-License-Identifier: Apache-2.0
// The forwards of the published tiled algorithms other than FA2 (flash.h). All expect a call that why_invalid() accepts.
#pragma once

#include "reference/models/model_options.h"
#include "reference/problem/kernel_abi.h"

namespace attest {

/// Dao et al. 2022, Algorithms 1 and 2: key tiles outer, O normalised and written back at every step.
void fa1_forward(const attest_call& call, const ModelOptions& options);
/// Shah et al. 2024, Algorithm 2: the scores of the next tile before the product of the last.
void fa3_forward(const attest_call& call, const ModelOptions& options);
/// FlashDecoding 2023: parts of the keys alone, then a merge of the partial outputs by their logsumexps.
void split_kv_forward(const attest_call& call, const ModelOptions& options);
/// Rabe and Staats 2021: chunks summarised alone as (m, l, u), merged at the end.
void rabe_staats_forward(const attest_call& call, const ModelOptions& options);
/// Two passes over the keys: m and l first, then normalised P times V, nothing rescaled.
void two_pass_forward(const attest_call& call, const ModelOptions& options);

extern const attest_kernel kFa1Kernel;
extern const attest_kernel kBlockSparseKernel;
extern const attest_kernel kFa3Kernel;
extern const attest_kernel kFa4Kernel;
extern const attest_kernel kSplitKvKernel;
extern const attest_kernel kRabeStaatsKernel;
extern const attest_kernel kTwoPassKernel;
extern const attest_kernel kTensorCoreKernel;

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// The `flash` model: FlashAttention-2 (Dao 2023), Algorithms 1 and 2, on a CPU.
#pragma once

#include "reference/models/model_options.h"
#include "reference/problem/kernel_abi.h"

namespace attest {

/// Both expect a call that why_invalid() accepts.
void flash_forward(const attest_call& call, const ModelOptions& options);
void flash_backward(const attest_call& call, const ModelOptions& options);

extern const attest_kernel kFlashKernel;

}  // namespace attest

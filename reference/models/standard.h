// SPDX-License-Identifier: Apache-2.0
// The `standard` model: S and P materialised whole.
#pragma once

#include "reference/models/model_options.h"
#include "reference/problem/kernel_abi.h"

namespace attest {

/// Both expect a call that why_invalid() accepts.
void standard_forward(const attest_call& call, const ModelOptions& options);
void standard_backward(const attest_call& call, const ModelOptions& options);

extern const attest_kernel kStandardKernel;

}  // namespace attest

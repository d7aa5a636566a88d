// SPDX-License-Identifier: Apache-2.0
// Launchers of cuda-standard.
#pragma once

#include "cuda/arguments.h"
#include "cuda/error.h"

namespace attest::cuda {

/// `p`: [B, Hq, max Sq, max Sk].
void launch_standard_forward(const Arguments& args, float* p, cudaStream_t stream);
/// `ds` as `p`; `delta` is [work_rows()], filled.
void launch_standard_backward(const Arguments& args, float* p, float* ds, const float* delta, cudaStream_t stream);

}  // namespace attest::cuda

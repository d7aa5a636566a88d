// SPDX-License-Identifier: Apache-2.0
// Launchers of the float32 kernels and of the small kernels that cuda-flash shares with them.
#pragma once

#include "cuda/arguments.h"
#include "cuda/error.h"

namespace attest::cuda {

void launch_flash_f32_forward(const Arguments& args, cudaStream_t stream);
/// `delta` is [work_rows()].
void launch_flash_f32_backward(const Arguments& args, const float* delta, cudaStream_t stream);

/// delta = rowsum(dO * O) - dLSE, one warp a row.
void launch_row_delta(const Arguments& args, float* delta, cudaStream_t stream);

/// Gradient of the bias, summed in a fixed order over what the bias broadcasts: one warp an element of `d_bias`.
void launch_bias_gradient(const Arguments& args, const float* delta, cudaStream_t stream);

}  // namespace attest::cuda

// SPDX-License-Identifier: Apache-2.0
#include "reference/models/flash.h"

#include "reference/models/builtin_call.h"
#include "reference/models/tiled_backward.h"

namespace attest {

void flash_backward(const attest_call& call, const ModelOptions& options) {
  tiled_backward(call, options, BackwardForm::fa2);
}

constinit const attest_kernel kFlashKernel = builtin_kernel<flash_forward, flash_backward, default_options>(
    "flash", "tiled online softmax in the order of FlashAttention-2, tiles of 64 x 64");

}  // namespace attest

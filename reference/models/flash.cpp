// SPDX-License-Identifier: Apache-2.0
#include "reference/models/flash.h"

#include "reference/models/builtin_call.h"

namespace attest {

constinit const attest_kernel kFlashKernel = builtin_kernel<flash_forward, flash_backward, default_options>(
    "flash", "tiled online softmax in the order of FlashAttention-2, tiles of 64 x 64");

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// The forward with split keys as cuda-flash and cuda-flash-split use it, and what the two share of their declarations.
#pragma once

#include <cstddef>
#include <string>

#include "reference/problem/kernel_abi.h"

namespace attest::cuda {

/// Why the tensor-core kernels will not run the problem; empty if they will.
std::string flash_refusal(const attest_problem& problem);
/// All but the tile sizes.
void flash_numerics(const attest_problem& problem, attest_numerics& numerics);

/// The keys of a row are divided among enough blocks to fill the device, `least` at the least (as far as there are
/// steps to divide). The same problem on the same device always gets the same number.
std::size_t split_workspace_bytes(const attest_problem& problem, int least);
void run_split_forward(const attest_call& call, int least);

}  // namespace attest::cuda

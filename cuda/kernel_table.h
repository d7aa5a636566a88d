// SPDX-License-Identifier: Apache-2.0
// One function per kernel of this folder; each is defined beside its launch code.
#pragma once

#include "reference/problem/kernel_abi.h"

namespace attest::cuda {

const attest_kernel& flash_f32_kernel();
const attest_kernel& flash_kernel();
const attest_kernel& flash_split_kernel();
const attest_kernel& standard_kernel();

/// The accumulation of a chain of float32 FMAs.
inline attest_accumulation fma_chain() { return {1, 0, 0x1p-24, 0, 0}; }

/// The accumulation of mma.sync with 16-bit operands on this device: what docs/hardware.md measured where it did, else
/// a pessimistic model.
attest_accumulation tensor_core_accumulation();

/// Multiprocessors of the device; 1 where there is none.
int multiprocessors();

}  // namespace attest::cuda

// SPDX-License-Identifier: Apache-2.0
// Launchers of the tensor-core kernels, one instance per element type and width (flash_forward_*.cu and so on).
#pragma once

#include "cuda/arguments.h"
#include "cuda/error.h"

namespace attest::cuda {

/// `rare`: with the features that the plain variant leaves out.
template <typename Element, int kWidth>
void launch_flash_forward(const Arguments& args, bool rare, cudaStream_t stream);

/// Work arrays of a forward whose keys are split.
struct SplitWorkspace {
  int splits = 1;
  std::int64_t rows = 0;  // work_rows
  float* o = nullptr;     // [splits, work_rows, Dv]; each split's own O
  float* lse = nullptr;   // [splits, work_rows]
};

/// The forward for short queries and for paged keys: blocks share the keys of a row, launch_flash_merge() follows.
template <typename Element, int kWidth>
void launch_flash_split(const Arguments& args, const SplitWorkspace& work, cudaStream_t stream);
void launch_flash_merge(const Arguments& args, const SplitWorkspace& work, cudaStream_t stream);

/// Work arrays of the backward pass.
struct FlashWorkspace {
  float* delta = nullptr;  // [work_rows]
  float* dq = nullptr;     // [query tiles of all sequences, Hq, rows of a tile * width], accumulator order
  int* turns = nullptr;    // [query tiles of all sequences, Hq]; blocks that have added to a tile of dQ
  int* ticket = nullptr;   // [1]
};

/// `work` is zeroed but for delta, which is filled.
template <typename Element, int kWidth>
void launch_flash_backward(const Arguments& args, const FlashWorkspace& work, bool rare, cudaStream_t stream);

/// delta = rowsum(dO * O) - dLSE, for 16-bit elements.
template <typename Element>
void launch_flash_delta(const Arguments& args, float* delta, cudaStream_t stream);

}  // namespace attest::cuda

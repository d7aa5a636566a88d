// SPDX-License-Identifier: Apache-2.0
#include "reference/models/builtin_kernels.h"

#include "reference/models/flash.h"
#include "reference/models/standard.h"
#include "reference/models/tiled_models.h"

namespace attest {

std::span<const attest_kernel* const> builtin_cpu_kernels() {
  static const attest_kernel* const kernels[] = {
      &kStandardKernel, &kFlashKernel,       &kFa1Kernel,        &kFa3Kernel,     &kFa4Kernel,
      &kSplitKvKernel,  &kBlockSparseKernel, &kRabeStaatsKernel, &kTwoPassKernel, &kTensorCoreKernel};
  return kernels;
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
#include "reference/models/builtin_kernels.h"

#include "reference/models/flash.h"
#include "reference/models/standard.h"

namespace attest {

std::span<const attest_kernel* const> builtin_cpu_kernels() {
  static const attest_kernel* const kernels[] = {&kStandardKernel, &kFlashKernel};
  return kernels;
}

}  // namespace attest

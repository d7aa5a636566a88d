// SPDX-License-Identifier: Apache-2.0
// The faulty kernels as a shared library, as a user's library would be.
#include "tests/support/faulty_kernels.h"

extern "C" __attribute__((visibility("default"))) size_t attest_kernels(uint32_t abi_version,
                                                                         const attest_kernel* const** kernels) {
  if (abi_version != ATTEST_ABI_VERSION) return 0;
  const auto list = attest::testing_support::faulty_kernels();
  *kernels = list.data();
  return list.size();
}

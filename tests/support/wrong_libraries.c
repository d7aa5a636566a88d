/* SPDX-License-Identifier: Apache-2.0
 * Shared libraries that are not what they should be; WRONG_KIND chooses. */
#include "reference/problem/kernel_abi.h"

#define EXPORT __attribute__((visibility("default")))

#if WRONG_KIND == 1 /* no entry point */
EXPORT int something_else(void) { return 0; }
#elif WRONG_KIND == 2 /* speaks another version */
EXPORT size_t attest_kernels(uint32_t abi_version, const attest_kernel* const** kernels) {
  (void)kernels;
  return abi_version == 99u;
}
#else /* tables that are not usable */
static int32_t supports(const attest_problem* problem, char* reason, size_t bytes) {
  (void)problem; (void)reason; (void)bytes;
  return 1;
}
static void numerics(const attest_problem* problem, attest_numerics* out) { (void)problem; (void)out; }
static const attest_kernel kernel = {
  sizeof(attest_kernel),
#if WRONG_KIND == 3 /* a table of another version */
  99u,
#else
  ATTEST_ABI_VERSION,
#endif
  "wrong", "claims a forward that it lacks", ATTEST_CPU, ATTEST_FORWARD, {0, 0, 0, 0, 0, 0, 0}, supports, numerics, NULL, NULL, NULL};
EXPORT size_t attest_kernels(uint32_t abi_version, const attest_kernel* const** kernels) {
  static const attest_kernel* const list[] = {&kernel};
  (void)abi_version;
  *kernels = list;
  return 1;
}
#endif

// SPDX-License-Identifier: Apache-2.0
// The built-in `flash` kernel with one planted fault each, to see that verification finds them. Each is named
// after its fault.
#pragma once

#include <span>

#include "reference/problem/kernel_abi.h"

namespace attest::testing_support {

std::span<const attest_kernel* const> faulty_kernels();
/// The one named, which must exist.
const attest_kernel* faulty_kernel(const char* name);

}  // namespace attest::testing_support

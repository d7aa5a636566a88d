// SPDX-License-Identifier: Apache-2.0
// What explains a failing case of `attest verify`.
#pragma once

#include <string>

#include "reference/problem/device_memory.h"
#include "reference/problem/problem.h"
#include "reference/verify/kernel.h"

namespace attest::tools {

/// Runs the case once more and diagnoses its outputs; the text of the diagnosis, or why there is none.
std::string explain_failure(const Kernel& kernel, const Problem& problem, DeviceMemory& memory);

}  // namespace attest::tools

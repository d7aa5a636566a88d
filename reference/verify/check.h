// SPDX-License-Identifier: Apache-2.0
// The main job: one case, one kernel, one verdict. check() is the picture of the whole project.
#pragma once

#include <cstddef>

#include "reference/problem/device_memory.h"
#include "reference/problem/problem.h"
#include "reference/verify/kernel.h"
#include "reference/verify/verdict.h"

namespace attest {

struct CheckOptions {
  std::size_t byte_limit = std::size_t{8} << 30;  // of the buffers of one case
};

/// Makes the inputs, the exact answer with its bounds and the kernel's answer, and judges the one by the other.
/// A wrong answer, a refusal or a run-time failure is a Verdict; only a wrong request throws.
Verdict check(const Kernel& kernel, const Problem& problem, DeviceMemory& memory, const CheckOptions& options = {});

}  // namespace attest

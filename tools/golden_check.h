// SPDX-License-Identifier: Apache-2.0
// Cases of a pack judged by the pack's own bounds: the answers of a kernel, or those that another backend left in files.
#pragma once

#include <string>

#include "golden/golden_case.h"
#include "golden/pack.h"
#include "reference/problem/device_memory.h"
#include "reference/verify/check.h"

namespace attest::tools {

/// The same case for the forward alone.
void keep_forward(golden::GoldenCase& golden);

/// Runs `kernel` on the inputs of the case.
Verdict check_golden(const Kernel& kernel, const golden::GoldenCase& golden, DeviceMemory& memory);

/// Judges the tensors of a safetensors file: o, lse, dq, dk, dv, dbias in the shapes of the case's own, in any float
/// type. A missing file, and a missing, extra or misshapen tensor, is an error that names it.
Verdict check_golden_outputs(const std::string& path, const golden::GoldenCase& golden);

}  // namespace attest::tools

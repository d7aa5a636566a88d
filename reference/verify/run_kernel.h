// SPDX-License-Identifier: Apache-2.0
// Runs a kernel on one case over buffers of a Placement.
#pragma once

#include <string>
#include <vector>

#include "reference/oracle/exact.h"
#include "reference/problem/device_memory.h"
#include "reference/problem/inputs.h"
#include "reference/problem/problem.h"
#include "reference/verify/kernel.h"
#include "reference/verify/kernel_failure.h"
#include "reference/verify/placement.h"

namespace attest {

struct KernelRun {
  Outputs outputs;
  std::vector<Finding> findings;
  std::string refusal;  // the kernel's reason for refusing the call with nothing written; empty where it ran
  std::string error;    // why else there are no outputs; empty where all went well
  FailureKind kind = FailureKind::status;  // of the error

  bool judgeable() const { return refusal.empty() && error.empty(); }
};

struct RunOptions {
  Poison poison = Poison::nan;
};

/// `want` stands in for the forward where only the backward is asked for. A kernel that does not come back (KernelFailure
/// of a worker, an exception) is an error of the run.
KernelRun run_kernel(const Kernel& kernel, const Problem& problem, const Inputs& inputs, const Exact& want,
                     DeviceMemory& memory, const RunOptions& options = {});

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// The main job: one case, one kernel, one verdict. check() is the picture of the whole project.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/oracle/bound.h"
#include "reference/problem/device_memory.h"
#include "reference/problem/inputs.h"
#include "reference/problem/problem.h"
#include "reference/verify/case_cost.h"
#include "reference/verify/kernel.h"
#include "reference/verify/kernel_failure.h"
#include "reference/verify/run_kernel.h"
#include "reference/verify/verdict.h"

namespace attest {

struct CheckUnit;

struct CheckOptions {
  std::vector<const CheckUnit*> units;  // beside the values; none by default
  double work_per_case = 0;  // multiplications that the units may spend on one case, at least one unit runs; 0: all run
  bool explain = false;  // also what the bounds of passing tensors are made of, for six more sweeps of bounds
  std::size_t byte_limit = std::size_t{8} << 30;  // of the buffers of one case
};

/// What is made of a case before its kernel runs: needs no device, and no kernel code but supports() and numerics(), so
/// that the next case can be prepared while another one runs.
struct PreparedCase {
  Problem problem;
  std::string unsupported;  // the kernel's reason; empty where it takes the case and the rest is filled
  std::optional<KernelFailure> failure;  // where the kernel did not survive being asked
  Inputs inputs;
  ExactWithBounds truth;    // in the kernel's conventions
  CaseCost cost;            // of inputs, oracle and bounds
};

/// The kernel's reason for declining, or ours for not judging it by value; empty where it can be judged.
std::string why_unjudgeable(const Kernel& kernel, const Problem& problem);

PreparedCase prepare(const Kernel& kernel, const Problem& problem, const CheckOptions& options = {});

/// Runs the kernel on a prepared case and judges its answer.
Verdict check(const Kernel& kernel, const PreparedCase& prepared, DeviceMemory& memory, const CheckOptions& options = {});

/// Judges the outputs of a run by value alone, wherever it was made; fills tensors, state and reason of the verdict.
void judge_run(const Problem& problem, const ExactWithBounds& truth, const KernelRun& run, Verdict& verdict);

/// The bound that fits the inputs of a case.
BoundMode bound_mode(const Problem& problem);
/// A number from the text of a case, for what its checks choose at random.
std::uint64_t case_seed(const Problem& problem);

/// Makes the inputs, the exact answer with its bounds and the kernel's answer, and judges the one by the other.
/// A wrong answer, a refusal or a run-time failure is a Verdict; only a wrong request throws.
Verdict check(const Kernel& kernel, const Problem& problem, DeviceMemory& memory, const CheckOptions& options = {});

}  // namespace attest

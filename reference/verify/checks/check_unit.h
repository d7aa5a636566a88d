// SPDX-License-Identifier: Apache-2.0
// A check beside the values: what it claims, which bugs it is for (docs/checks.md), and the function that runs the kernel
// again on a variant of the case, for which the answer is known without the oracle computing anything anew.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reference/problem/device_memory.h"
#include "reference/problem/inputs.h"
#include "reference/verify/check.h"
#include "reference/verify/run_kernel.h"
#include "reference/verify/verdict.h"

namespace attest {

struct CheckResult {
  Outcome outcome = Outcome::pass;
  std::string reason;
  std::vector<Finding> findings;  // any makes it a fail

  static CheckResult not_applicable(std::string why) { return {Outcome::not_applicable, std::move(why), {}}; }
};

/// The case, its exact answer, and what the kernel answered first.
class CheckContext {
 public:
  CheckContext(const Kernel& kernel, const PreparedCase& prepared, const KernelRun& base, DeviceMemory& memory,
               std::uint64_t seed)
      : kernel_(kernel), prepared_(prepared), base_(base), memory_(memory), seed_(seed) {}

  const Kernel& kernel() const { return kernel_; }
  const attest_conventions& conventions() const { return kernel_.table().conventions; }
  const Problem& problem() const { return prepared_.problem; }
  const Inputs& inputs() const { return prepared_.inputs; }
  const ExactWithBounds& truth() const { return prepared_.truth; }
  const Outputs& base() const { return base_.outputs; }
  /// True where the first run already had a finding of this name, which the verdict then has too.
  bool base_found(const char* finding) const;
  DeviceMemory& memory() const { return memory_; }

  /// A number below `n`, the same for the same case, check and `draw`.
  std::int64_t below(std::int64_t n, const char* check, std::uint64_t draw = 0) const;

  /// `want` stands in for the forward where only the backward is asked for. Throws KernelFailure where the kernel does not
  /// come back.
  KernelRun run(const Problem& problem, const Inputs& inputs, const Exact& want, const RunOptions& options = {}) const {
    KernelRun run = run_kernel(kernel_, problem, inputs, want, memory_, options);
    // A kernel that came back with a bad status is the check's to judge; one that did not come back ends the case.
    if (!run.error.empty() && run.kind != FailureKind::status) throw KernelFailure(run.kind, run.error);
    return run;
  }

 private:
  const Kernel& kernel_;
  const PreparedCase& prepared_;
  const KernelRun& base_;
  DeviceMemory& memory_;
  std::uint64_t seed_;
};

struct CheckUnit {
  const char* name;
  const char* claim;  // one line
  const char* bugs;   // kinds of docs/checks.md: "K05 K15"
  double runs;        // kernel runs that it costs, in runs of the case itself
  CheckResult (*run)(const CheckContext&);
  // Of a check that runs once a run, on a case of its own: case texts, of which the first that a kernel takes is used.
  std::span<const char* const> own_cases = {};
};

/// False for a check with cases of its own, unless this is one of them, in whichever direction.
bool runs_on(const CheckUnit& unit, const Problem& problem);
/// The case of its own on which the check runs with this kernel; empty where it has none that the kernel takes.
std::optional<Problem> own_case(const CheckUnit& unit, const Kernel& kernel, std::optional<Direction> direction);

std::span<const CheckUnit* const> check_units();
/// "all", "none", or names separated by commas. Throws InvalidRequest("checks", ...).
std::vector<const CheckUnit*> select_checks(const std::string& list);

}  // namespace attest

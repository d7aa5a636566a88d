// SPDX-License-Identifier: Apache-2.0
#include "tools/explain_failure.h"

#include <cmath>
#include <exception>
#include <limits>

#include <fmt/format.h>

#include "reference/diagnose/diagnosis.h"
#include "reference/problem/case_text.h"
#include "reference/verify/check.h"
#include "reference/verify/run_kernel.h"

namespace attest::tools {
namespace {

/// From the kernel's declared conventions to the contract's, which the diagnosis speaks.
void undo_conventions(const attest_conventions& conventions, const Problem& problem, const Exact& want, Outputs& got) {
  constexpr double ln_2 = 0.69314718055994530942;
  for (std::size_t n = 0; n < got.lse.size(); ++n) {
    if (conventions.lse_unit == ATTEST_LSE_BASE2) got.lse[n] *= ln_2;
    if (!std::isinf(want.lse[n])) continue;
    if (conventions.empty_lse == ATTEST_EMPTY_LSE_POS_INF) got.lse[n] = -got.lse[n];
    if (conventions.empty_rows == ATTEST_EMPTY_ZERO) continue;
    for (double& o : got.o.row(static_cast<std::int64_t>(n) / problem.heads_q, static_cast<std::int64_t>(n) % problem.heads_q)) o = 0;
    got.lse[n] = -std::numeric_limits<double>::infinity();
  }
}

}  // namespace

std::string explain_failure(const Kernel& kernel, const Problem& problem, DeviceMemory& memory) {
  const std::string head = fmt::format("explanation of {} on '{}'\n", kernel.name(), print_case(problem));
  try {
    const PreparedCase prepared = prepare(kernel, problem);
    if (!prepared.unsupported.empty() || prepared.failure) return head + "  the case did not run a second time\n";
    KernelRun run = run_kernel(kernel, problem, prepared.inputs, prepared.truth.exact, memory);
    if (!run.judgeable()) return head + "  the case did not run a second time\n";
    undo_conventions(kernel.table().conventions, problem, prepared.truth.exact, run.outputs);
    const Outputs& got = run.outputs;
    diagnose::Diagnosis diagnosis;
    for (const Finding& finding : run.findings) {
      if (finding.check == "unwritten") diagnosis.lines.push_back({"nan", diagnose::Level::fault, "unwritten memory: " + finding.message, "they hold the pre-fill still: check the grid and the bounds of the store"});
    }
    diagnose::diagnose_outputs(diagnose::evidence_of(problem, prepared.inputs, {&got.o, &got.lse, &got.dq, &got.dk, &got.dv, &got.d_bias},
                                                     make_profile(kernel.numerics(problem), problem)),
                               diagnosis);
    std::string text = head;
    const std::string lines = diagnose::print(diagnosis);
    for (std::size_t at = 0; at < lines.size();) {
      const std::size_t end = lines.find('\n', at);
      text += "  " + lines.substr(at, end - at) + "\n";
      at = end + 1;
    }
    return text;
  } catch (const std::exception& error) {
    return fmt::format("{}  none: {}\n", head, error.what());
  }
}

}  // namespace attest::tools

// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/run_kernel.h"

#include <exception>

#include <fmt/format.h>

#include "reference/problem/case_text.h"

namespace attest {
namespace {

constexpr std::size_t kMessageBytes = 1024;

/// Runs one direction; leaves the reason in `run` where the status is not ATTEST_OK.
void run_direction(const Kernel& kernel, std::int32_t direction, Placement& placement, DeviceMemory& memory,
                   const std::string& context, KernelRun& run) {
  const attest_kernel& table = kernel.table();
  const char* name = direction == ATTEST_FORWARD ? "forward" : "backward";
  const std::size_t workspace =
      table.workspace_bytes == nullptr ? 0 : table.workspace_bytes(placement.problem(), direction);
  attest_call call = placement.call(direction, workspace);
  std::string message(kMessageBytes, '\0');
  call.message = message.data();
  call.message_bytes = message.size();
  const std::int32_t status = direction == ATTEST_FORWARD ? table.forward(&call) : table.backward(&call);
  message.back() = '\0';
  message.resize(message.find('\0'));
  memory.synchronize(context);
  if (status == ATTEST_OK) return;
  if (status != ATTEST_REFUSED) {
    run.error = fmt::format("{} failed with status {}: {}", name, status, message);
  } else if (placement.wrote_results(direction)) {
    run.error = fmt::format("{} refused the call ({}) after it had written results", name, message);
  } else {
    run.refusal = fmt::format("{} refused the call: {}", name, message);
  }
}

void run_directions(const Kernel& kernel, const Problem& problem, const Inputs& inputs, const Exact& want,
                    DeviceMemory& memory, const RunOptions& options, KernelRun& run) {
  Placement placement(problem, inputs, kernel.table().conventions, memory, options.poison);
  const std::string context = fmt::format("kernel {}, case {}", kernel.name(), print_case(problem));
  const auto step = [&](std::int32_t direction) {
    try {
      run_direction(kernel, direction, placement, memory, context, run);
      if (!run.judgeable()) return;
      placement.read_outputs(direction, run.outputs, run.findings);
      placement.inspect(direction, run.findings);
    } catch (const KernelFailure&) {
      throw;
    } catch (const DeviceError& error) {
      run.error = error.what();
      run.kind = FailureKind::device;
    } catch (const std::exception& error) {
      run.error = fmt::format("threw: {}", error.what());
      run.kind = FailureKind::exception;
    } catch (...) {
      run.error = "threw something that is not a std::exception";
      run.kind = FailureKind::exception;
    }
  };
  if (problem.wants_forward()) {
    step(ATTEST_FORWARD);
  } else {
    placement.give_forward({want.o, want.lse});
  }
  if (problem.wants_backward() && run.judgeable()) step(ATTEST_BACKWARD);
}

}  // namespace

KernelRun run_kernel(const Kernel& kernel, const Problem& problem, const Inputs& inputs, const Exact& want,
                     DeviceMemory& memory, const RunOptions& options) {
  KernelRun run;
  try {
    run_directions(kernel, problem, inputs, want, memory, options, run);
  } catch (const KernelFailure& failure) {
    run.error = failure.what();
    run.kind = failure.kind();
  }
  return run;
}

}  // namespace attest

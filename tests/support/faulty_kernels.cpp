// SPDX-License-Identifier: Apache-2.0
#include "tests/support/faulty_kernels.h"

#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "reference/models/builtin_kernels.h"

namespace attest::testing_support {
namespace {

const attest_kernel& flash() {
  for (const attest_kernel* kernel : builtin_cpu_kernels()) {
    if (std::string(kernel->name) == "flash") return *kernel;
  }
  throw std::logic_error("there is no built-in kernel named flash");
}

/// Runs flash on a changed problem.
template <typename Change>
std::int32_t with_problem(const attest_call* call, bool forward, Change change) {
  attest_problem problem = *call->problem;
  change(problem);
  attest_call changed = *call;
  changed.problem = &problem;
  return forward ? flash().forward(&changed) : flash().backward(&changed);
}

/// The scale is a thousandth too large, forward and backward.
void scale_off(attest_problem& problem) { problem.scale *= 1.001; }
std::int32_t scale_off_forward(const attest_call* call) { return with_problem(call, true, scale_off); }
std::int32_t scale_off_backward(const attest_call* call) { return with_problem(call, false, scale_off); }

/// Bottom-right is read as top-left.
void top_left(attest_problem& problem) {
  if (problem.causal == ATTEST_CAUSAL_BOTTOM_RIGHT) problem.causal = ATTEST_CAUSAL_TOP_LEFT;
}
std::int32_t top_left_forward(const attest_call* call) { return with_problem(call, true, top_left); }
std::int32_t top_left_backward(const attest_call* call) { return with_problem(call, false, top_left); }

/// The backward ignores causal, the forward is right.
std::int32_t no_causal_backward(const attest_call* call) {
  return with_problem(call, false, [](attest_problem& problem) { problem.causal = ATTEST_CAUSAL_NONE; });
}

std::int32_t plain_forward(const attest_call* call) { return flash().forward(call); }
std::int32_t plain_backward(const attest_call* call) { return flash().backward(call); }

/// Nothing is written.
std::int32_t writes_nothing(const attest_call*) { return ATTEST_OK; }

std::size_t element_bytes(std::int32_t dtype) { return dtype == ATTEST_F64 ? 8 : dtype == ATTEST_F32 ? 4 : 2; }

/// One byte before and one after o are overwritten.
std::int32_t writes_before_forward(const attest_call* call) {
  const std::int32_t status = flash().forward(call);
  static_cast<unsigned char*>(call->o.data)[-1] = 0;
  return status;
}

/// The first element of q is zeroed on the way.
std::int32_t changes_input_forward(const attest_call* call) {
  const std::int32_t status = flash().forward(call);
  std::memset(call->q.data, 0, element_bytes(call->problem->dtype));
  return status;
}

/// Writes the column after the last of the first row of o, which is a gap where heads are strided.
std::int32_t writes_gap_forward(const attest_call* call) {
  const std::int32_t status = flash().forward(call);
  const std::size_t bytes = element_bytes(call->problem->out_dtype);
  std::memset(static_cast<unsigned char*>(call->o.data) + bytes * static_cast<std::size_t>(call->problem->dim_v), 0, bytes);
  return status;
}

std::int32_t refuses_forward(const attest_call* call) {
  std::snprintf(call->message, call->message_bytes, "planted refusal");
  return ATTEST_REFUSED;
}

std::int32_t refuses_late_forward(const attest_call* call) {
  flash().forward(call);
  std::snprintf(call->message, call->message_bytes, "planted late refusal");
  return ATTEST_REFUSED;
}

std::int32_t throws_forward(const attest_call*) { throw std::runtime_error("planted exception"); }

std::int32_t flash_supports(const attest_problem* problem, char* reason, std::size_t bytes) {
  return flash().supports(problem, reason, bytes);
}
void flash_numerics(const attest_problem* problem, attest_numerics* numerics) { flash().numerics(problem, numerics); }
std::size_t flash_workspace(const attest_problem* problem, std::int32_t direction) {
  return flash().workspace_bytes == nullptr ? 0 : flash().workspace_bytes(problem, direction);
}

using Function = std::int32_t (*)(const attest_call*);

attest_kernel planted(const char* name, const char* description, Function forward, Function backward) {
  attest_kernel kernel = flash();
  kernel.name = name;
  kernel.description = description;
  kernel.supports = flash_supports;
  kernel.numerics = flash_numerics;
  kernel.workspace_bytes = flash_workspace;
  kernel.forward = forward;
  kernel.backward = backward;
  return kernel;
}

}  // namespace

std::span<const attest_kernel* const> faulty_kernels() {
  static const std::vector<attest_kernel> tables = {
      planted("scale-off", "scale a thousandth too large", scale_off_forward, scale_off_backward),
      planted("top-left", "bottom-right causal read as top-left", top_left_forward, top_left_backward),
      planted("no-causal-backward", "backward ignores causal", plain_forward, no_causal_backward),
      planted("writes-nothing", "forward writes nothing", writes_nothing, plain_backward),
      planted("writes-before", "forward writes a byte before o", writes_before_forward, plain_backward),
      planted("changes-input", "forward changes q", changes_input_forward, plain_backward),
      planted("writes-gap", "forward writes past the first row of o", writes_gap_forward, plain_backward),
      planted("refuses", "refuses what it supports", refuses_forward, plain_backward),
      planted("refuses-late", "refuses when it has already written", refuses_late_forward, plain_backward),
      planted("throws", "throws across the ABI", throws_forward, plain_backward),
  };
  static const std::vector<const attest_kernel*> list = [] {
    std::vector<const attest_kernel*> pointers;
    for (const attest_kernel& table : tables) pointers.push_back(&table);
    return pointers;
  }();
  return list;
}

const attest_kernel* faulty_kernel(const char* name) {
  for (const attest_kernel* kernel : faulty_kernels()) {
    if (std::strcmp(kernel->name, name) == 0) return kernel;
  }
  throw std::logic_error(std::string("there is no faulty kernel named ") + name);
}

}  // namespace attest::testing_support

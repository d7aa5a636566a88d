// SPDX-License-Identifier: Apache-2.0
#include "tests/support/check_faults.h"

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/faulty_kernels.h"

namespace attest::testing_support {
namespace {

const attest_kernel& sound() {
  static const attest_kernel* const kernel = [] {
    const attest_kernel* table = faulty_kernel("writes-nothing");  // flash but for its forward
    return table;
  }();
  return *kernel;
}

/// All faults are planted in float32 calls.
float* floats(const attest_tensor& tensor) { return static_cast<float*>(tensor.data); }

std::int32_t flash_forward(const attest_call* call) { return faulty_kernel("no-causal-backward")->forward(call); }
std::int32_t flash_backward(const attest_call* call) { return sound().backward(call); }

/// Address of the first column of the last row of a padded tensor, whether a token or padding.
float* last_row(const attest_tensor& tensor, std::int64_t batch, std::int64_t rows) {
  return floats(tensor) + (batch - 1) * tensor.stride_batch + (rows - 1) * tensor.stride_seq;
}

/// 0 times the last key's row reaches o.
std::int32_t reads_hidden_key(const attest_call* call) {
  const std::int32_t status = flash_forward(call);
  floats(call->o)[0] += 0 * *last_row(call->k, call->problem->batch, call->problem->rows_k);
  return status;
}

/// A trace of the last key reaches o.
std::int32_t leaks_late_key(const attest_call* call) {
  const std::int32_t status = flash_forward(call);
  float& o = floats(call->o)[0];
  o = std::nextafter(o, *last_row(call->k, call->problem->batch, call->problem->rows_k) > 0 ? 10.0f : -10.0f);
  return status;
}

/// NaN in o becomes 0, as a maximum that drops NaN would have it.
std::int32_t drops_nan(const attest_call* call) {
  const std::int32_t status = flash_forward(call);
  const attest_problem& p = *call->problem;
  for (std::int64_t i = 0; i < p.rows_q; ++i) {
    for (std::int64_t d = 0; d < p.dim_v; ++d) {
      float& o = floats(call->o)[i * call->o.stride_seq + d];
      if (std::isnan(o)) o = 0;
    }
  }
  return status;
}

/// The last bit of o changes from call to call.
std::int32_t drifts(const attest_call* call) {
  static bool up = false;
  const std::int32_t status = flash_forward(call);
  up = !up;
  if (up) floats(call->o)[0] = std::nextafter(floats(call->o)[0], 10.0f);
  return status;
}

/// Scale, softcap, causal and window of a call are those of the call before where the widths agree.
std::int32_t keeps_old_constants(const attest_call* call) {
  static attest_problem before{};
  attest_problem problem = *call->problem;
  if (before.dim == problem.dim && before.dim_v == problem.dim_v) {
    problem.scale = before.scale;
    problem.softcap = before.softcap;
    problem.causal = before.causal;
    problem.has_window = before.has_window;
    problem.window_left = before.window_left;
    problem.window_right = before.window_right;
    problem.window_align = before.window_align;
  }
  before = *call->problem;
  attest_call changed = *call;
  changed.problem = &problem;
  return flash_forward(&changed);
}

/// 0 times the first query of the last sequence reaches o of the first.
std::int32_t reads_neighbour(const attest_call* call) {
  const std::int32_t status = flash_forward(call);
  floats(call->o)[0] += 0 * floats(call->q)[(call->problem->batch - 1) * call->q.stride_batch];
  return status;
}

/// do is read with the strides of o.
std::int32_t strides_of_o(const attest_call* call) {
  attest_call changed = *call;
  void* const data = call->d_o.data;
  changed.d_o = call->o;
  changed.d_o.data = data;
  return flash_backward(&changed);
}

/// A gradient that is not there, far below every bound.
std::int32_t adds_to_dq(const attest_call* call) {
  const std::int32_t status = flash_backward(call);
  floats(call->dq)[0] += 1e-20f;
  return status;
}

using Function = std::int32_t (*)(const attest_call*);

attest_kernel planted(const char* name, Function forward, Function backward) {
  attest_kernel kernel = sound();
  kernel.name = name;
  kernel.description = "flash with one fault";
  kernel.forward = forward;
  kernel.backward = backward;
  return kernel;
}

}  // namespace

const attest_kernel* check_fault(const char* name) {
  static const std::vector<attest_kernel> tables = {
      planted("sound", flash_forward, flash_backward),
      planted("reads-hidden-key", reads_hidden_key, flash_backward),
      planted("leaks-late-key", leaks_late_key, flash_backward),
      planted("drops-nan", drops_nan, flash_backward),
      planted("drifts", drifts, flash_backward),
      planted("keeps-old-constants", keeps_old_constants, flash_backward),
      planted("reads-neighbour", reads_neighbour, flash_backward),
      planted("strides-of-o", flash_forward, strides_of_o),
      planted("adds-to-dq", flash_forward, adds_to_dq),
  };
  for (const attest_kernel& table : tables) {
    if (std::strcmp(table.name, name) == 0) return &table;
  }
  throw std::logic_error(std::string("there is no fault named ") + name);
}

}  // namespace attest::testing_support

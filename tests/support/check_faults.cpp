// SPDX-License-Identifier: Apache-2.0
#include "tests/support/check_faults.h"

#include <algorithm>
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

/// Offset of the last row of a padded tensor of query heads with the strides of `tensor`.
std::int64_t last_offset(const attest_tensor& tensor, const attest_problem& problem) {
  return (problem.batch - 1) * tensor.stride_batch + (problem.rows_q - 1) * tensor.stride_seq +
         (problem.heads_q - 1) * tensor.stride_head;
}

/// do is read with the strides of o, where these do not lead out of its memory: the fault is a wrong answer, not a crash.
std::int32_t strides_of_o(const attest_call* call) {
  attest_call changed = *call;
  if (last_offset(call->o, *call->problem) <= last_offset(call->d_o, *call->problem)) {
    void* const data = call->d_o.data;
    changed.d_o = call->o;
    changed.d_o.data = data;
  }
  return flash_backward(&changed);
}

/// A gradient that is not there, far below every bound.
std::int32_t adds_to_dq(const attest_call* call) {
  const std::int32_t status = flash_backward(call);
  floats(call->dq)[0] += 1e-20f;
  return status;
}

template <typename Change>
std::int32_t changed_problem(const attest_call* call, std::int32_t (*function)(const attest_call*), Change change) {
  attest_problem problem = *call->problem;
  change(problem);
  attest_call changed = *call;
  changed.problem = &problem;
  return function(&changed);
}

/// The window reaches one key further to the left than it should.
std::int32_t window_off_by_one(const attest_call* call) {
  return changed_problem(call, flash_forward, [](attest_problem& p) { p.window_left += p.has_window != 0 && p.window_left >= 0; });
}

/// Keys from the 65th on are forgotten.
std::int32_t one_tile_only(const attest_call* call) {
  std::vector<std::int64_t> lengths(call->problem->seq_k, call->problem->seq_k + call->problem->batch);
  for (std::int64_t& length : lengths) length = std::min<std::int64_t>(length, 64);
  const std::vector<std::int32_t> in_call(lengths.begin(), lengths.end());
  attest_problem problem = *call->problem;
  problem.seq_k = lengths.data();
  problem.max_k = std::min<std::int64_t>(problem.max_k, 64);
  attest_call changed = *call;
  changed.problem = &problem;
  changed.seq_k = in_call.data();
  return flash_forward(&changed);
}

/// The first element of the second sequence's o is lost.
std::int32_t loses_second_sequence(const attest_call* call) {
  const std::int32_t status = flash_forward(call);
  const attest_problem& p = *call->problem;
  if (p.layout != ATTEST_THD && p.pad_side == ATTEST_PAD_RIGHT && p.batch > 1 && p.seq_q[1] > 0 && p.out_dtype == ATTEST_F32) {
    floats(call->o)[call->o.stride_batch] = 0;
  }
  return status;
}

/// dk and dv leave the second query head of a group out.
std::int32_t half_a_group(const attest_call* call) {
  const std::int32_t status = flash_backward(call);
  const attest_problem& p = *call->problem;
  if (p.heads_q == p.heads_kv || p.out_dtype != ATTEST_F32 || p.seq_k[0] == 0) return status;
  floats(call->dk)[(p.layout != ATTEST_THD && p.pad_side == ATTEST_PAD_LEFT ? p.rows_k - p.seq_k[0] : 0) * call->dk.stride_seq] *= 0.5f;
  return status;
}

/// Softcap is ignored by the backward.
std::int32_t no_softcap_backward(const attest_call* call) {
  return changed_problem(call, flash_backward, [](attest_problem& p) { p.softcap = 0; });
}

/// One sequence of one key/value head takes a path of its own, which is wrong.
std::int32_t wrong_when_alone(const attest_call* call) {
  const std::int32_t status = flash_forward(call);
  if (call->problem->batch * call->problem->heads_kv == 1) floats(call->o)[0] += 1;
  return status;
}

/// The first sequence is taken for the longest.
std::int32_t first_is_shortest(const attest_call* call) {
  const std::int32_t status = flash_forward(call);
  const attest_problem& p = *call->problem;
  if (p.seq_q[0] > p.seq_q[p.batch - 1]) floats(call->o)[0] += 1;
  return status;
}

/// The right side of a window is ignored.
std::int32_t no_right_window(const attest_call* call) {
  return changed_problem(call, flash_forward, [](attest_problem& p) { p.window_right = -1; });
}

/// lse of an empty row is 0.
std::int32_t zero_lse_of_empty(const attest_call* call) {
  const std::int32_t status = flash_forward(call);
  if (std::isinf(floats(call->lse)[0])) floats(call->lse)[0] = 0;
  return status;
}

/// o saturates at 3.2.
std::int32_t saturates(const attest_call* call) {
  const std::int32_t status = flash_forward(call);
  for (std::int64_t d = 0; d < call->problem->dim_v; ++d) floats(call->o)[d] = std::clamp(floats(call->o)[d], -3.2f, 3.2f);
  return status;
}

/// Keys are expected to rise.
std::int32_t expects_rising_keys(const attest_call* call) {
  const std::int32_t status = flash_forward(call);
  if (floats(call->k)[0] > *last_row(call->k, 1, call->problem->seq_k[0])) floats(call->o)[0] += 1;
  return status;
}

/// lse of fewer than 8 keys is in the wrong unit.
std::int32_t short_lse_in_base2(const attest_call* call) {
  const std::int32_t status = flash_forward(call);
  if (call->problem->max_k < 8) floats(call->lse)[0] *= 1.44269504f;
  return status;
}

/// The running maximum starts at -30, not at -inf.
std::int32_t maximum_from_30(const attest_call* call) {
  const std::int32_t status = flash_forward(call);
  if (floats(call->lse)[0] < -30) floats(call->o)[0] = 0;
  return status;
}

/// A row of one value is taken for one of zeros.
std::int32_t no_constant_v(const attest_call* call) {
  const std::int32_t status = flash_forward(call);
  const float* v = floats(call->v);
  if (v[0] == v[1]) floats(call->o)[0] = 0;
  return status;
}

/// The gradient of a bias without a key dimension is left to the last key.
std::int32_t last_key_of_dbias(const attest_call* call) {
  const std::int32_t status = flash_backward(call);
  if (call->d_bias.data != nullptr && call->d_bias.stride_key == 0) static_cast<float*>(call->d_bias.data)[0] += 0.5f;
  return status;
}

/// o of a call whose first k is that of the call before is the o of that call where q differs but a little.
std::int32_t forgets_small_steps(const attest_call* call) {
  static std::vector<float> before;  // q of one row, k[0] and o of one row of the last call
  const auto width = static_cast<std::size_t>(call->problem->dim);
  std::vector<float> now(floats(call->q), floats(call->q) + width);
  now.push_back(floats(call->k)[0]);
  const std::int32_t status = flash_forward(call);
  float* const o = floats(call->o);
  if (before.size() == now.size() + width && before[width] == now[width] && !std::equal(now.begin(), now.end(), before.begin())) {
    std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(width) + 1, width, o);
  } else {
    now.insert(now.end(), o, o + width);
    before = now;
  }
  return status;
}

/// A key whose v begins with 0 is left out of the row sum.
std::int32_t skips_zero_v(const attest_call* call) {
  const std::int32_t status = flash_forward(call);
  if (floats(call->v)[call->v.stride_seq] == 0) floats(call->o)[0] *= 1.25f;
  return status;
}

/// A query whose do begins with 0 is taken for the one after it.
std::int32_t skips_zero_do(const attest_call* call) {
  const std::int32_t status = flash_backward(call);
  if (floats(call->d_o)[call->d_o.stride_seq] == 0) floats(call->dv)[0] += 0.5f;
  return status;
}

/// No more than 65,535 sequences are launched.
std::int32_t grid_of_16_bits(const attest_call* call) {
  return changed_problem(call, flash_forward, [](attest_problem& p) { p.batch = std::min<std::int64_t>(p.batch, 65'535); });
}

/// Heads are counted in 16 bits.
std::int32_t heads_of_16_bits(const attest_call* call) {
  const std::int32_t status = flash_forward(call);
  if (call->problem->heads_q > 65'536) floats(call->o)[65'536 * call->o.stride_head] = floats(call->o)[0] + 1;
  return status;
}

attest_tensor with_short_strides(const attest_tensor& tensor) {
  return {tensor.data, static_cast<std::int32_t>(tensor.stride_batch), static_cast<std::int32_t>(tensor.stride_seq),
          static_cast<std::int32_t>(tensor.stride_head)};
}

/// Strides of k are kept in 32 bits.
std::int32_t short_strides_of_k(const attest_call* call) {
  attest_call changed = *call;
  changed.k = with_short_strides(call->k);
  return flash_forward(&changed);
}

/// Strides of dv are kept in 32 bits.
std::int32_t short_strides_of_dv(const attest_call* call) {
  attest_call changed = *call;
  changed.dv = with_short_strides(call->dv);
  return flash_backward(&changed);
}

/// Whatever is asked is done.
std::int32_t refuses_nothing(const attest_call* call) {
  const std::int32_t status = flash_forward(call);
  return status == ATTEST_REFUSED ? ATTEST_OK : status;
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
      planted("wrong-when-alone", wrong_when_alone, flash_backward),
      planted("first-is-shortest", first_is_shortest, flash_backward),
      planted("no-right-window", no_right_window, flash_backward),
      planted("zero-lse-of-empty", zero_lse_of_empty, flash_backward),
      planted("saturates", saturates, flash_backward),
      planted("expects-rising-keys", expects_rising_keys, flash_backward),
      planted("short-lse-in-base2", short_lse_in_base2, flash_backward),
      planted("maximum-from-30", maximum_from_30, flash_backward),
      planted("no-constant-v", no_constant_v, flash_backward),
      planted("last-key-of-dbias", flash_forward, last_key_of_dbias),
      planted("forgets-small-steps", forgets_small_steps, flash_backward),
      planted("skips-zero-v", skips_zero_v, flash_backward),
      planted("skips-zero-do", flash_forward, skips_zero_do),
      planted("grid-of-16-bits", grid_of_16_bits, flash_backward),
      planted("heads-of-16-bits", heads_of_16_bits, flash_backward),
      planted("short-strides-of-k", short_strides_of_k, flash_backward),
      planted("short-strides-of-dv", flash_forward, short_strides_of_dv),
      planted("refuses-nothing", refuses_nothing, flash_backward),
      planted("window-off-by-one", window_off_by_one, flash_backward),
      planted("one-tile-only", one_tile_only, flash_backward),
      planted("loses-second-sequence", loses_second_sequence, flash_backward),
      planted("half-a-group", flash_forward, half_a_group),
      planted("no-softcap-backward", flash_forward, no_softcap_backward),
  };
  for (const attest_kernel& table : tables) {
    if (std::strcmp(table.name, name) == 0) return &table;
  }
  throw std::logic_error(std::string("there is no fault named ") + name);
}

}  // namespace attest::testing_support

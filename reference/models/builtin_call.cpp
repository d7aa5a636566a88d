// SPDX-License-Identifier: Apache-2.0
#include "reference/models/builtin_call.h"

#include <algorithm>
#include <cstdio>
#include <exception>

#include "reference/models/call_view.h"
#include "reference/models/exponential.h"
#include "reference/models/row_reductions.h"

namespace attest {

std::int32_t answer_support(const attest_problem& problem, DeclineFunction declined, char* reason, std::size_t bytes) {
  std::string why = why_invalid(problem);
  if (why.empty()) why = declined(problem);
  if (!why.empty() && reason != nullptr && bytes > 0) std::snprintf(reason, bytes, "%s", why.c_str());
  return why.empty() ? 1 : 0;
}

std::int32_t run_checked(const attest_call& call, std::int32_t direction, ModelFunction model, OptionsFunction options,
                         DeclineFunction declined) {
  const auto answer = [&call](std::int32_t status, const std::string& why) {
    if (call.message != nullptr && call.message_bytes > 0)
      std::snprintf(call.message, call.message_bytes, "%s", why.c_str());
    return status;
  };
  std::string why = why_invalid(call, direction);
  if (why.empty()) why = declined(*call.problem);
  if (!why.empty()) return answer(ATTEST_REFUSED, why);
  try {
    model(call, options(*call.problem));
  } catch (const std::exception& error) {
    return answer(ATTEST_FAILED, error.what());
  }
  return ATTEST_OK;
}

void declare_shared(const attest_problem& problem, const ModelOptions& options, attest_numerics& numerics) {
  const bool f64 = problem.dtype == ATTEST_F64;
  const bool f32 = problem.dtype == ATTEST_F32;
  // Products of 16- and 8-bit operands are exact in float; others round once more before they are added.
  const attest_accumulation chain = {1, 0, f64 ? 0x1p-52 : f32 ? 0x1p-23 : 0x1p-24, 0, 0};
  numerics.p_dtype = attest_dtype_of(options.p_forward);
  numerics.has_p_dtype_backward = options.p_backward != options.p_forward ? 1 : 0;
  numerics.p_dtype_backward = attest_dtype_of(options.p_backward);
  numerics.p_normalised = 0;
  numerics.p_offset = options.p_offset;
  numerics.l_from_rounded = 0;
  numerics.qk = chain;
  numerics.pv = chain;
  numerics.bwd = chain;
  numerics.exp_error = f64 ? kExpErrorDouble : kExpErrorFloat;
  numerics.log_error = f64 ? 0x1p-52 : 0x1p-23;
  numerics.tanh_error = f64 ? 0x1p-51 : 0x1p-22;
  numerics.input_error = 0;
  numerics.key_tile = options.key_tile;
  numerics.query_tile = options.query_tile;
  numerics.lanes = options.key_tile >= 8 * kRowLanes ? static_cast<std::int32_t>(kRowLanes) : 1;
  numerics.delta_source = ATTEST_DELTA_FROM_O;
  numerics.reduce_dtype = f64 ? ATTEST_F64 : ATTEST_F32;
}

}  // namespace attest

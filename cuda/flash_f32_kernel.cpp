// SPDX-License-Identifier: Apache-2.0
// cuda-flash-f32 behind the kernel ABI.
#include "cuda/arguments.h"
#include "cuda/flash_f32.h"
#include "cuda/kernel_table.h"

namespace attest::cuda {
namespace {

constexpr std::int64_t kMaxWidth = 512;  // two accumulator tiles of 32 rows in shared memory

std::string refusal(const attest_problem& problem) {
  if (std::string reason = refusal_of(problem); !reason.empty()) return reason;
  if (problem.dtype < ATTEST_F32 || problem.dtype > ATTEST_F8E5M2) return "types are f32, f16, bf16 and f8";
  if (std::string reason = refusal_of_types(problem); !reason.empty()) return reason;
  if (problem.dim > kMaxWidth || problem.dim_v > kMaxWidth) return "widths are at most 512";
  return {};
}

std::int32_t supports(const attest_problem* problem, char* reason, std::size_t reason_bytes) {
  return answer_support(refusal(*problem), reason, reason_bytes);
}

void numerics(const attest_problem*, attest_numerics* numerics) {
  numerics->p_dtype = ATTEST_F32;
  numerics->p_normalised = 0;
  numerics->p_offset = 0;
  numerics->l_from_rounded = 0;
  numerics->qk = numerics->pv = numerics->bwd = fma_chain();
  numerics->exp_error = 0x1p-22;   // expf: 1 ulp
  numerics->log_error = 0x1p-22;   // logf: 1 ulp
  numerics->tanh_error = 0x1p-22;  // tanhf: 1 ulp
  numerics->input_error = 0;
  numerics->key_tile = 32;
  numerics->query_tile = 32;
  numerics->lanes = 32;
  numerics->delta_source = ATTEST_DELTA_FROM_O;
  numerics->reduce_dtype = ATTEST_F32;
}

std::size_t workspace_bytes(const attest_problem* problem, std::int32_t direction) {
  return direction == ATTEST_BACKWARD ? static_cast<std::size_t>(work_rows(*problem)) * sizeof(float) : 0;
}

void run_forward(const attest_call& call) {
  launch_flash_f32_forward(arguments_of(call), static_cast<cudaStream_t>(call.stream));
}

void run_backward(const attest_call& call) {
  const Arguments args = arguments_of(call);
  auto* const delta = static_cast<float*>(call.workspace);  // [work_rows]
  auto* const stream = static_cast<cudaStream_t>(call.stream);
  launch_row_delta(args, delta, stream);
  launch_flash_f32_backward(args, delta, stream);
  if (call.problem->wants_d_bias) launch_bias_gradient(args, delta, stream);
}

std::int32_t forward(const attest_call* call) { return run_checked(call, flash_f32_kernel(), run_forward); }
std::int32_t backward(const attest_call* call) { return run_checked(call, flash_f32_kernel(), run_backward); }

}  // namespace

const attest_kernel& flash_f32_kernel() {
  static const attest_kernel kernel = {
      sizeof(attest_kernel),
      ATTEST_ABI_VERSION,
      "cuda-flash-f32",
      "online softmax in float32 on the ordinary units, every feature, any width up to 512",
      ATTEST_CUDA,
      ATTEST_FORWARD | ATTEST_BACKWARD,
      {ATTEST_EMPTY_ZERO, ATTEST_EMPTY_LSE_NEG_INF, ATTEST_LSE_ROWS, ATTEST_LSE_NATURAL, ATTEST_DROPOUT_ATTEST, 1, 1},
      supports,
      numerics,
      workspace_bytes,
      forward,
      backward};
  return kernel;
}

}  // namespace attest::cuda

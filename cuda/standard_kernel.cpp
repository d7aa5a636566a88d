// SPDX-License-Identifier: Apache-2.0
// cuda-standard behind the kernel ABI.
#include "cuda/arguments.h"
#include "cuda/flash_f32.h"
#include "cuda/kernel_table.h"
#include "cuda/standard.h"

namespace attest::cuda {
namespace {

constexpr double kMostScoreBytes = 0x1p36;  // 64 GiB: the materialised S

/// Numbers in [B, Hq, max Sq, max Sk].
std::int64_t scores_of(const attest_problem& problem) {
  return problem.batch * problem.heads_q * problem.max_q * problem.max_k;
}

std::string refusal(const attest_problem& problem) {
  if (std::string reason = refusal_of(problem); !reason.empty()) return reason;
  if (problem.dtype < ATTEST_F32 || problem.dtype > ATTEST_F8E5M2) return "types are f32, f16, bf16 and f8";
  if (std::string reason = refusal_of_types(problem); !reason.empty()) return reason;
  const double bytes = static_cast<double>(problem.batch * problem.heads_q) * static_cast<double>(problem.max_q) *
                       static_cast<double>(problem.max_k) * sizeof(float);
  if (bytes > kMostScoreBytes) return "materialised scores of more than 64 GiB";
  return {};
}

std::int32_t supports(const attest_problem* problem, char* reason, std::size_t reason_bytes) {
  return answer_support(refusal(*problem), reason, reason_bytes);
}

void numerics(const attest_problem*, attest_numerics* numerics) {
  numerics->p_dtype = ATTEST_F32;
  numerics->p_normalised = 1;
  numerics->p_offset = 0;
  numerics->l_from_rounded = 0;
  numerics->qk = numerics->pv = numerics->bwd = fma_chain();
  numerics->exp_error = 0x1p-22;   // expf: 1 ulp
  numerics->log_error = 0x1p-22;   // logf: 1 ulp
  numerics->tanh_error = 0x1p-22;  // tanhf: 1 ulp
  numerics->input_error = 0;
  numerics->key_tile = 64;
  numerics->query_tile = 64;
  numerics->lanes = 32;
  numerics->delta_source = ATTEST_DELTA_FROM_O;
  numerics->reduce_dtype = ATTEST_F32;
}

std::size_t workspace_bytes(const attest_problem* problem, std::int32_t direction) {
  const auto scores = static_cast<std::size_t>(scores_of(*problem)) * sizeof(float);
  if (direction == ATTEST_FORWARD) return scores;
  return 2 * scores + static_cast<std::size_t>(work_rows(*problem)) * sizeof(float);
}

void run_forward(const attest_call& call) {
  launch_standard_forward(arguments_of(call), static_cast<float*>(call.workspace),
                          static_cast<cudaStream_t>(call.stream));
}

void run_backward(const attest_call& call) {
  const Arguments args = arguments_of(call);
  auto* const stream = static_cast<cudaStream_t>(call.stream);
  auto* const p = static_cast<float*>(call.workspace);  // [B, Hq, max Sq, max Sk]
  float* const ds = p + scores_of(*call.problem);       // [B, Hq, max Sq, max Sk]
  float* const delta = ds + scores_of(*call.problem);   // [work_rows]
  launch_row_delta(args, delta, stream);
  launch_standard_backward(args, p, ds, delta, stream);
  if (call.problem->wants_d_bias) launch_bias_gradient(args, delta, stream);
}

std::int32_t forward(const attest_call* call) { return run_checked(call, standard_kernel(), run_forward); }
std::int32_t backward(const attest_call* call) { return run_checked(call, standard_kernel(), run_backward); }

}  // namespace

const attest_kernel& standard_kernel() {
  static const attest_kernel kernel = {
      sizeof(attest_kernel),
      ATTEST_ABI_VERSION,
      "cuda-standard",
      "S and P in memory, float32, plain tiled products, every feature: the baseline of the papers",
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

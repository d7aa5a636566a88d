// SPDX-License-Identifier: Apache-2.0
// cuda-flash-split behind the kernel ABI: the split-key forward for every length.
#include "cuda/flash_split.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "cuda/arguments.h"
#include "cuda/flash.h"
#include "cuda/flash_tiles.h"
#include "cuda/kernel_table.h"

namespace attest::cuda {
namespace {

constexpr int kBlocksPerMultiprocessor = 4;
constexpr int kMostSplits = 64;
constexpr int kLeastSplits = 3;  // of cuda-flash-split, so that merging is always exercised

int split_count(const attest_problem& problem, int least) {
  const std::int64_t tiles = (problem.max_q + kSplitRows - 1) / kSplitRows;
  const std::int64_t blocks = std::max<std::int64_t>(1, problem.batch * problem.heads_q * tiles);
  const std::int64_t steps = (problem.max_k + kSplitKeys - 1) / kSplitKeys;
  const std::int64_t wanted = static_cast<std::int64_t>(kBlocksPerMultiprocessor) * multiprocessors() / blocks;
  const std::int64_t splits = std::clamp<std::int64_t>(wanted, least, kMostSplits);
  return static_cast<int>(std::clamp<std::int64_t>(splits, 1, std::max<std::int64_t>(1, steps)));
}

template <typename Element>
void launch_of_width(const Arguments& args, const SplitWorkspace& work, cudaStream_t stream) {
  switch (flash_split_width(args.dim, args.dim_v)) {
    case 64:
      return launch_flash_split<Element, 64>(args, work, stream);
    case 128:
      return launch_flash_split<Element, 128>(args, work, stream);
    default:
      return launch_flash_split<Element, 256>(args, work, stream);
  }
}

std::int32_t supports(const attest_problem* problem, char* reason, std::size_t reason_bytes) {
  std::string refusal = flash_refusal(*problem);
  if (refusal.empty() && (problem->directions & ATTEST_BACKWARD) != 0) refusal = "has no backward";
  return answer_support(refusal, reason, reason_bytes);
}

void numerics(const attest_problem* problem, attest_numerics* numerics) {
  flash_numerics(*problem, *numerics);
  numerics->key_tile = kSplitKeys;
  numerics->query_tile = kSplitRows;
}

std::size_t workspace_bytes(const attest_problem* problem, std::int32_t direction) {
  return direction == ATTEST_FORWARD ? split_workspace_bytes(*problem, kLeastSplits) : 0;
}

void run_forward(const attest_call& call) { run_split_forward(call, kLeastSplits); }

std::int32_t forward(const attest_call* call) { return run_checked(call, flash_split_kernel(), run_forward); }

}  // namespace

std::string flash_refusal(const attest_problem& problem) {
  if (std::string reason = refusal_of(problem); !reason.empty()) return reason;
  if (problem.dtype != ATTEST_F16 && problem.dtype != ATTEST_BF16) return "types are f16 and bf16";
  if (std::string reason = refusal_of_types(problem); !reason.empty()) return reason;
  if (flash_width(problem.dim, problem.dim_v) == 0) return "widths are at most 256";
  return {};
}

void flash_numerics(const attest_problem& problem, attest_numerics& numerics) {
  numerics.p_dtype = problem.dtype;
  numerics.p_normalised = 0;
  numerics.p_offset = 0;
  numerics.l_from_rounded = 0;
  numerics.qk = numerics.pv = numerics.bwd = tensor_core_accumulation();
  numerics.exp_error = 0x1p-22;   // ex2.approx
  numerics.log_error = 0x1p-22;   // logf
  numerics.tanh_error = 0x1p-22;  // tanhf
  numerics.input_error = 0;
  numerics.lanes = 4;
  numerics.delta_source = ATTEST_DELTA_FROM_O;
  numerics.reduce_dtype = ATTEST_F32;
}

std::size_t split_workspace_bytes(const attest_problem& problem, int least) {
  const int splits = split_count(problem, least);
  if (splits == 1) return 0;
  return static_cast<std::size_t>(splits) * work_rows(problem) * (problem.dim_v + 1) * sizeof(float);
}

void run_split_forward(const attest_call& call, int least) {
  const attest_problem& problem = *call.problem;
  const Arguments args = arguments_of(call);
  auto* const stream = static_cast<cudaStream_t>(call.stream);
  SplitWorkspace work;
  work.splits = split_count(problem, least);
  work.rows = work_rows(problem);
  work.o = static_cast<float*>(call.workspace);
  work.lse = work.o + work.splits * work.rows * problem.dim_v;
  if (problem.dtype == ATTEST_F16) {
    launch_of_width<__half>(args, work, stream);
  } else {
    launch_of_width<__nv_bfloat16>(args, work, stream);
  }
  if (work.splits > 1) launch_flash_merge(args, work, stream);
}

const attest_kernel& flash_split_kernel() {
  static const attest_kernel kernel = {
      sizeof(attest_kernel),
      ATTEST_ABI_VERSION,
      "cuda-flash-split",
      "forward on tensor cores with the keys of a row divided among blocks, f16 and bf16, paged or not",
      ATTEST_CUDA,
      ATTEST_FORWARD,
      {ATTEST_EMPTY_ZERO, ATTEST_EMPTY_LSE_NEG_INF, ATTEST_LSE_ROWS, ATTEST_LSE_NATURAL, ATTEST_DROPOUT_ATTEST, 1, 0},
      supports,
      numerics,
      workspace_bytes,
      forward,
      nullptr};
  return kernel;
}

}  // namespace attest::cuda

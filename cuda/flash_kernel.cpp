// SPDX-License-Identifier: Apache-2.0
// cuda-flash behind the kernel ABI: picks the instance by type and width.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "cuda/arguments.h"
#include "cuda/flash.h"
#include "cuda/flash_f32.h"
#include "cuda/flash_split.h"
#include "cuda/flash_tiles.h"
#include "cuda/kernel_table.h"

namespace attest::cuda {
namespace {

/// Few queries leave most multiprocessors idle unless blocks share the keys; only that kernel knows pages.
bool uses_split(const attest_problem& problem) { return problem.page_size > 0 || problem.max_q <= kSplitRows; }

std::int32_t supports(const attest_problem* problem, char* reason, std::size_t reason_bytes) {
  return answer_support(flash_refusal(*problem), reason, reason_bytes);
}

void numerics(const attest_problem* problem, attest_numerics* numerics) {
  const ForwardTiles tiles = forward_tiles(flash_width(problem->dim, problem->dim_v));
  flash_numerics(*problem, *numerics);
  numerics->key_tile = tiles.keys;
  numerics->query_tile = tiles.rows;
}

/// Tiles of queries of all sequences; packed sequences begin at any row (see query_tile_index).
std::int64_t query_tiles(const attest_problem& problem) {
  const std::int64_t rows = backward_tiles(flash_backward_width(problem.dim, problem.dim_v)).rows;
  if (problem.layout == ATTEST_THD) return problem.rows_q / rows + problem.batch + 1;
  return problem.batch * ((problem.max_q + rows - 1) / rows);
}

/// Sizes in bytes of the parts of the backward workspace, in their order; each begins at a multiple of 256.
struct WorkspaceParts {
  std::size_t dq;
  std::size_t turns;
  std::size_t ticket;
  std::size_t delta;
  std::size_t zeroed() const { return dq + turns + ticket; }
};

WorkspaceParts workspace_parts(const attest_problem& problem) {
  const int width = flash_backward_width(problem.dim, problem.dim_v);
  const auto tiles = static_cast<std::size_t>(query_tiles(problem) * problem.heads_q);
  const auto aligned = [](std::size_t bytes) { return (bytes + 255) / 256 * 256; };
  return {aligned(tiles * backward_tiles(width).rows * width * sizeof(float)), aligned(tiles * sizeof(int)), 256,
          aligned(static_cast<std::size_t>(work_rows(problem)) * sizeof(float))};
}

std::size_t workspace_bytes(const attest_problem* problem, std::int32_t direction) {
  if (direction != ATTEST_BACKWARD) return uses_split(*problem) ? split_workspace_bytes(*problem, 1) : 0;
  const WorkspaceParts parts = workspace_parts(*problem);
  return parts.zeroed() + parts.delta;
}

template <typename Element>
void forward_of_width(const Arguments& args, int width, bool rare, cudaStream_t stream) {
  switch (width) {
    case 32:
      return launch_flash_forward<Element, 32>(args, rare, stream);
    case 64:
      return launch_flash_forward<Element, 64>(args, rare, stream);
    case 96:
      return launch_flash_forward<Element, 96>(args, rare, stream);
    case 128:
      return launch_flash_forward<Element, 128>(args, rare, stream);
    case 192:
      return launch_flash_forward<Element, 192>(args, rare, stream);
    default:
      return launch_flash_forward<Element, 256>(args, rare, stream);
  }
}

template <typename Element>
void backward_of_width(const Arguments& args, const FlashWorkspace& work, int width, bool rare, cudaStream_t stream) {
  constexpr int kElementType = std::is_same_v<Element, __half> ? ATTEST_F16 : ATTEST_BF16;
  if (args.vectorised && args.vectorised_out && args.out_dtype == kElementType) {
    launch_flash_delta<Element>(args, work.delta, stream);
  } else {
    launch_row_delta(args, work.delta, stream);
  }
  switch (width) {
    case 64:
      return launch_flash_backward<Element, 64>(args, work, rare, stream);
    case 128:
      return launch_flash_backward<Element, 128>(args, work, rare, stream);
    default:
      return launch_flash_backward<Element, 256>(args, work, rare, stream);
  }
}

void run_forward(const attest_call& call) {
  const attest_problem& problem = *call.problem;
  if (uses_split(problem)) return run_split_forward(call, 1);
  const Arguments args = arguments_of(call);
  const int width = flash_width(problem.dim, problem.dim_v);
  auto* const stream = static_cast<cudaStream_t>(call.stream);
  if (problem.dtype == ATTEST_F16) {
    forward_of_width<__half>(args, width, needs_rare(problem), stream);
  } else {
    forward_of_width<__nv_bfloat16>(args, width, needs_rare(problem), stream);
  }
}

void run_backward(const attest_call& call) {
  const attest_problem& problem = *call.problem;
  const Arguments args = arguments_of(call);
  auto* const stream = static_cast<cudaStream_t>(call.stream);
  const WorkspaceParts parts = workspace_parts(problem);
  auto* const bytes = static_cast<char*>(call.workspace);
  FlashWorkspace work;
  work.dq = reinterpret_cast<float*>(bytes);
  work.turns = reinterpret_cast<int*>(bytes + parts.dq);
  work.ticket = reinterpret_cast<int*>(bytes + parts.dq + parts.turns);
  work.delta = reinterpret_cast<float*>(bytes + parts.zeroed());
  check(cudaMemsetAsync(call.workspace, 0, parts.zeroed(), stream), "cudaMemsetAsync", "cuda-flash");

  const int width = flash_backward_width(problem.dim, problem.dim_v);
  if (problem.dtype == ATTEST_F16) {
    backward_of_width<__half>(args, work, width, has_rare_features(problem), stream);
  } else {
    backward_of_width<__nv_bfloat16>(args, work, width, has_rare_features(problem), stream);
  }
  if (problem.wants_d_bias) launch_bias_gradient(args, work.delta, stream);
}

std::int32_t forward(const attest_call* call) { return run_checked(call, flash_kernel(), run_forward); }
std::int32_t backward(const attest_call* call) { return run_checked(call, flash_kernel(), run_backward); }

}  // namespace

const attest_kernel& flash_kernel() {
  static const attest_kernel kernel = {
      sizeof(attest_kernel),
      ATTEST_ABI_VERSION,
      "cuda-flash",
      "FlashAttention-2 on tensor cores (mma.sync), f16 and bf16, widths up to 256",
      ATTEST_CUDA,
      ATTEST_FORWARD | ATTEST_BACKWARD,
      {ATTEST_EMPTY_ZERO, ATTEST_EMPTY_LSE_NEG_INF, ATTEST_LSE_ROWS, ATTEST_LSE_NATURAL, ATTEST_DROPOUT_ATTEST, 1, 0},
      supports,
      numerics,
      workspace_bytes,
      forward,
      backward};
  return kernel;
}

}  // namespace attest::cuda

// SPDX-License-Identifier: Apache-2.0
// Joins what the splits of the keys left: with w_s = exp(LSE_s - max), O = sum_s w_s O_s / sum_s w_s and LSE = max +
// log sum_s w_s (the online softmax's rescaling; FlashAttention, section 3.1). A split without keys has LSE -inf.
#include "cuda/flash.h"
#include "cuda/launch.h"
#include "cuda/scores.cuh"

namespace attest::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;

/// One warp a row and head.
__global__ void __launch_bounds__(kThreads) flash_merge_kernel(const Arguments args, const SplitWorkspace work) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (index >= static_cast<std::int64_t>(args.batch) * args.heads_q * args.max_q) return;
  const int i = static_cast<int>(index % args.max_q);
  const int h = static_cast<int>(index / args.max_q % args.heads_q);
  const Sequence s = sequence_of(args, static_cast<int>(index / args.max_q / args.heads_q));
  if (i >= s.sq) return;
  const std::int64_t row = work_row(args, s, h, i);

  float max = -INFINITY;
  for (int split = 0; split < work.splits; ++split) max = fmaxf(max, work.lse[split * work.rows + row]);
  const float safe_max = max == -INFINITY ? 0.0f : max;
  float sum = 0;
  for (int split = 0; split < work.splits; ++split) sum += expf(work.lse[split * work.rows + row] - safe_max);
  if (lane == 0) *lse_pointer(args.lse, s, h, i) = sum == 0 ? -INFINITY : max + logf(sum);
  const float factor = sum == 0 ? 0.0f : 1.0f / sum;
  const std::int64_t o = element_offset(args.o, s.b, s.row_q + i, h);
  for (int column = lane; column < args.dim_v; column += 32) {
    float value = 0;
    for (int split = 0; split < work.splits; ++split) {
      const std::int64_t at = split * work.rows + row;
      const float lse = work.lse[at];
      if (lse != -INFINITY) value = fmaf(expf(lse - safe_max), work.o[at * args.dim_v + column], value);
    }
    store_element(args.out_dtype, args.o.data, o + column, value * factor);
  }
}

}  // namespace

void launch_flash_merge(const Arguments& args, const SplitWorkspace& work, cudaStream_t stream) {
  const std::int64_t rows = static_cast<std::int64_t>(args.batch) * args.heads_q * args.max_q;
  launch_kernel(flash_merge_kernel, "flash_merge", (rows + kWarps - 1) / kWarps, kThreads, 0, stream, args, work);
}

}  // namespace attest::cuda

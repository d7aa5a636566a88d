// SPDX-License-Identifier: Apache-2.0
// delta = rowsum(dO * O) - dLSE where both are 16-bit tensors with aligned rows: 16 lanes a row, 16 bytes a load.
#include "cuda/flash.h"
#include "cuda/launch.h"
#include "cuda/sequence.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace attest::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLanes = 16;  // of a row

template <typename Element>
__device__ float dot_chunk(const uint4& x, const uint4& y) {
  const auto* const a = reinterpret_cast<const Element*>(&x);
  const auto* const b = reinterpret_cast<const Element*>(&y);
  float sum = 0;
#pragma unroll
  for (int e = 0; e < 8; ++e) sum = fmaf(static_cast<float>(a[e]), static_cast<float>(b[e]), sum);
  return sum;
}

template <typename Element>
__global__ void __launch_bounds__(kThreads) flash_delta_kernel(const Arguments args, float* delta) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * (kThreads / kLanes) + threadIdx.x / kLanes;
  const int lane = threadIdx.x % kLanes;
  const std::int64_t heads = static_cast<std::int64_t>(args.batch) * args.heads_q;
  const bool inside = index < heads * args.max_q;
  const int i = inside ? static_cast<int>(index / args.heads_q % args.max_q) : 0;  // neighbours in memory side by side
  const int h = static_cast<int>(index % args.heads_q);
  const Sequence s = sequence_of(args, inside ? static_cast<int>(index / args.heads_q / args.max_q) : 0);
  float sum = 0;
  if (inside && i < s.sq) {
    const auto* const o = row_pointer<const Element>(args.o, s, s.row_q, i, h);
    const auto* const d_o = row_pointer<const Element>(args.d_o, s, s.row_q, i, h);
    for (int c = lane * 8; c < args.dim_v; c += kLanes * 8) {
      sum += dot_chunk<Element>(*reinterpret_cast<const uint4*>(o + c), *reinterpret_cast<const uint4*>(d_o + c));
    }
  }
  for (int offset = kLanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (!inside || i >= s.sq || lane != 0) return;
  if (args.d_lse.data != nullptr) sum -= *lse_pointer(args.d_lse, s, h, i);
  delta[work_row(args, s, h, i)] = sum;
}

}  // namespace

template <typename Element>
void launch_flash_delta(const Arguments& args, float* delta, cudaStream_t stream) {
  const std::int64_t rows = static_cast<std::int64_t>(args.batch) * args.heads_q * args.max_q;
  constexpr int kRows = kThreads / kLanes;
  launch_kernel(flash_delta_kernel<Element>, "flash_delta", (rows + kRows - 1) / kRows, kThreads, 0, stream, args,
                delta);
}

template void launch_flash_delta<__half>(const Arguments&, float*, cudaStream_t);
template void launch_flash_delta<__nv_bfloat16>(const Arguments&, float*, cudaStream_t);

}  // namespace attest::cuda

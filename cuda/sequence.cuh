// SPDX-License-Identifier: Apache-2.0
// One sequence of the batch on the device: its lengths, where its rows begin, and which keys causal mask, window and
// length let a row see. This is the kernels' own reading of the contract; nothing of it is shared with the oracle.
#pragma once

#include <climits>

#include "cuda/arguments.h"

namespace attest::cuda {

/// Row i sees keys [max(0, i + first_shift), min(sk, i + last_shift)), before explicit masks.
struct Sequence {
  int b;
  int sq;
  int sk;
  std::int64_t row_q;  // row of token 0 in q-side tensors
  std::int64_t row_k;
  int first_shift;
  int last_shift;

  __device__ int first_key(int i) const { return max(0, i + first_shift); }
  __device__ int last_key(int i) const { return min(sk, i + last_shift); }
};

__device__ inline int clamp_shift(std::int64_t shift) {
  constexpr std::int64_t kLimit = 1 << 30;
  return static_cast<int>(shift < -kLimit ? -kLimit : shift > kLimit ? kLimit : shift);
}

__device__ inline Sequence sequence_of(const Arguments& args, int b) {
  Sequence s;
  s.b = b;
  s.sq = args.seq_q[b];
  s.sk = args.seq_k[b];
  s.row_q = args.cu_q != nullptr ? args.cu_q[b] : args.pad_left ? args.rows_q - s.sq : 0;
  s.row_k = args.cu_k != nullptr ? args.cu_k[b] : args.pad_left ? args.rows_k - s.sk : 0;

  const std::int64_t bottom_right = static_cast<std::int64_t>(s.sk) - s.sq;
  std::int64_t first = INT_MIN;
  std::int64_t last = INT_MAX;
  if (args.causal != ATTEST_CAUSAL_NONE) {
    last = (args.causal == ATTEST_CAUSAL_BOTTOM_RIGHT ? bottom_right : 0) + 1;
  }
  const std::int64_t window_shift = args.window_align == ATTEST_CAUSAL_BOTTOM_RIGHT ? bottom_right : 0;
  if (args.window_left >= 0) first = window_shift - args.window_left;
  if (args.window_right >= 0 && window_shift + args.window_right + 1 < last)
    last = window_shift + args.window_right + 1;
  s.first_shift = clamp_shift(first);
  s.last_shift = clamp_shift(last);
  return s;
}

/// Pointer to (token `row` of the sequence, head, column 0). `row0` is row_q or row_k of the sequence.
template <typename T>
__device__ T* row_pointer(const TensorView& tensor, const Sequence& s, std::int64_t row0, std::int64_t row, int head) {
  return static_cast<T*>(tensor.data) + s.b * tensor.batch + (row0 + row) * tensor.seq + head * tensor.head;
}

/// Element offset of (key j, head, column 0) in k or v, paged or not.
__device__ inline std::int64_t key_offset(const Arguments& args, const TensorView& tensor, const Sequence& s, int j,
                                          int head) {
  if (args.page_table == nullptr) return s.b * tensor.batch + (s.row_k + j) * tensor.seq + head * tensor.head;
  const std::int64_t page = args.page_table[s.b * args.page_table_stride + j / args.page_size];
  return page * tensor.batch + j % args.page_size * tensor.seq + head * tensor.head;
}

/// Address of the LSE of row i.
__device__ inline float* lse_pointer(const TensorView& lse, const Sequence& s, int head, int i) {
  return row_pointer<float>(lse, s, s.row_q, i, head);
}

/// Index of (head, row i) in a work array of work_rows() numbers.
__device__ inline std::int64_t work_row(const Arguments& args, const Sequence& s, int head, int i) {
  return args.cu_q != nullptr ? head * args.rows_q + s.row_q + i
                              : (static_cast<std::int64_t>(s.b) * args.heads_q + head) * args.max_q + i;
}

}  // namespace attest::cuda

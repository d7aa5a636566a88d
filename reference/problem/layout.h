// SPDX-License-Identifier: Apache-2.0
// Where elements of the tensors of a Problem lie in storage. Used by the harness that places data; kernels
// do their own addressing from the ABI.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/problem/problem.h"

namespace attest {

/// Extents of a tensor: `batch` is 1 for packed layouts, whose rows hold all tokens end to end, and the pages of a pool
/// for paged k and v, whose rows are the tokens of a page.
struct Extents {
  std::int64_t batch;
  std::int64_t rows;
  std::int64_t heads;
  std::int64_t width;
};

Extents extents_of(const Problem& problem, TensorId id);
/// The stated strides of the tensor, or the contiguous ones of the layout.
Strides strides_of(const Problem& problem, TensorId id);
/// Elements from the first to the last addressed one; 0 for an empty tensor.
std::int64_t storage_elements(const Problem& problem, TensorId id);

bool is_query_side(TensorId id);  // q o do dq
bool is_output(TensorId id);      // o dq dk dv

/// k and v of a problem with pages.
bool is_paged(const Problem& problem, TensorId id);
/// Pages of the pool: one for each page_size keys or part of them of each sequence, and some that nobody uses.
std::int64_t pages_in_pool(const Problem& problem);
/// Numbers in a row of the page table, at least 1.
std::int64_t pages_in_row(const Problem& problem);
/// [B, pages_in_row]: scattered over the pool; numbers past the last page of a sequence name a page that nobody uses.
std::vector<std::int64_t> page_table(const Problem& problem);

/// Row of token i of sequence b in the tensor: its padded row, or its packed position. Not for paged tensors.
std::int64_t row_of_token(const Problem& problem, TensorId id, std::int64_t b, std::int64_t i);
/// The rows and element offsets of one tensor, for many look-ups: made in O(B), each is O(1).
class ElementPlaces {
 public:
  ElementPlaces(const Problem& problem, TensorId id);
  /// row_of_token
  std::int64_t row(std::int64_t b, std::int64_t i) const { return first_[static_cast<std::size_t>(b)] + i; }
  /// offset_of
  std::int64_t offset(std::int64_t b, std::int64_t i, std::int64_t head) const;

 private:
  Strides strides_;
  bool packed_;
  std::int64_t page_size_;            // 0: not paged
  std::int64_t pool_ = 0;             // pages
  std::vector<std::int64_t> first_;   // [B] row of token 0, or pages before the sequence
};

/// Element offset of (b, token i, head, column 0), in O(B).
std::int64_t offset_of(const Problem& problem, TensorId id, std::int64_t b, std::int64_t i, std::int64_t head);

}  // namespace attest

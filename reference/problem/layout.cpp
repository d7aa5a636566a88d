// SPDX-License-Identifier: Apache-2.0
// Extents, strides and element offsets of the tensors of a Problem.
#include "reference/problem/layout.h"

#include <algorithm>
#include <numeric>

namespace attest {
namespace {

bool has_value_width(TensorId id) {
  return id == TensorId::v || id == TensorId::o || id == TensorId::d_o || id == TensorId::dv;
}

std::int64_t length_of(const Problem& problem, TensorId id, std::int64_t b) {
  return (is_query_side(id) ? problem.seq_q : problem.seq_k)[static_cast<std::size_t>(b)];
}

std::int64_t pages_of(const Problem& problem, std::int64_t length) {
  return (length + problem.page_size - 1) / problem.page_size;
}

/// Pages of the sequences before b, in the order of the batch.
std::int64_t pages_before(const Problem& problem, std::int64_t b) {
  std::int64_t pages = 0;
  for (std::int64_t s = 0; s < b; ++s) pages += pages_of(problem, length_of(problem, TensorId::k, s));
  return pages;
}

/// The number in the pool of the page that comes `index`-th in the order of the batch: a permutation that leaves
/// neighbours about 0.6 of the pool apart.
std::int64_t scattered(std::int64_t index, std::int64_t pool) {
  std::int64_t step = std::max<std::int64_t>(1, pool * 5 / 8);
  while (std::gcd(step, pool) != 1) ++step;
  return (index * step + pool / 2) % pool;
}

}  // namespace

bool is_paged(const Problem& problem, TensorId id) {
  return problem.page_size > 0 && (id == TensorId::k || id == TensorId::v);
}

std::int64_t pages_in_pool(const Problem& problem) {
  const std::int64_t used = pages_before(problem, problem.batch());
  return used + used / 4 + 1;
}

std::int64_t pages_in_row(const Problem& problem) {
  return std::max<std::int64_t>(1, pages_of(problem, problem.max_k()));
}

std::vector<std::int64_t> page_table(const Problem& problem) {
  const std::int64_t pool = pages_in_pool(problem);
  const std::int64_t columns = pages_in_row(problem);
  const std::int64_t unused = scattered(pool - 1, pool);
  std::vector<std::int64_t> table(static_cast<std::size_t>(problem.batch() * columns), unused);
  std::int64_t index = 0;
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    const std::int64_t pages = pages_of(problem, length_of(problem, TensorId::k, b));
    for (std::int64_t c = 0; c < pages; ++c) table[static_cast<std::size_t>(b * columns + c)] = scattered(index++, pool);
  }
  return table;
}

bool is_query_side(TensorId id) {
  return id == TensorId::q || id == TensorId::o || id == TensorId::d_o || id == TensorId::dq;
}

bool is_output(TensorId id) {
  return id == TensorId::o || id == TensorId::dq || id == TensorId::dk || id == TensorId::dv;
}

Extents extents_of(const Problem& problem, TensorId id) {
  if (is_paged(problem, id)) {
    return {.batch = pages_in_pool(problem),
            .rows = problem.page_size,
            .heads = problem.heads_kv,
            .width = has_value_width(id) ? problem.width_v() : problem.dim};
  }
  return {.batch = problem.layout == Layout::thd ? 1 : problem.batch(),
          .rows = is_query_side(id) ? problem.rows_q() : problem.rows_k(),
          .heads = is_query_side(id) ? problem.heads_q : problem.heads_kv,
          .width = has_value_width(id) ? problem.width_v() : problem.dim};
}

Strides strides_of(const Problem& problem, TensorId id) {
  if (const auto& stated = problem.strides[static_cast<std::size_t>(id)]) return *stated;
  const Extents extents = extents_of(problem, id);
  const std::int64_t token = extents.heads * extents.width;
  switch (problem.layout) {
    case Layout::bshd:
      return {.batch = extents.rows * token, .seq = token, .head = extents.width};
    case Layout::bhsd:
      return {.batch = extents.rows * token, .seq = extents.width, .head = extents.rows * extents.width};
    case Layout::thd:
      if (is_paged(problem, id)) return {.batch = extents.rows * token, .seq = token, .head = extents.width};
      break;
  }
  return {.batch = 0, .seq = token, .head = extents.width};
}

std::int64_t storage_elements(const Problem& problem, TensorId id) {
  const Extents extents = extents_of(problem, id);
  if (extents.batch * extents.rows * extents.heads * extents.width == 0) return 0;
  const Strides strides = strides_of(problem, id);
  return (extents.batch - 1) * strides.batch + (extents.rows - 1) * strides.seq + (extents.heads - 1) * strides.head +
         extents.width;
}

std::int64_t row_of_token(const Problem& problem, TensorId id, std::int64_t b, std::int64_t i) {
  if (problem.layout == Layout::thd) {
    const auto& lengths = is_query_side(id) ? problem.seq_q : problem.seq_k;
    return std::accumulate(lengths.begin(), lengths.begin() + b, std::int64_t{0}) + i;
  }
  const std::int64_t first =
      problem.pad == PadSide::left ? extents_of(problem, id).rows - length_of(problem, id, b) : 0;
  return first + i;
}

ElementPlaces::ElementPlaces(const Problem& problem, TensorId id)
    : strides_(strides_of(problem, id)), packed_(problem.layout == Layout::thd),
      page_size_(is_paged(problem, id) ? problem.page_size : 0) {
  if (page_size_ > 0) pool_ = pages_in_pool(problem);
  const std::int64_t rows = extents_of(problem, id).rows;
  std::int64_t before = 0;  // tokens, or pages, of the sequences so far
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    const std::int64_t length = length_of(problem, id, b);
    first_.push_back(page_size_ > 0 || packed_ ? before : problem.pad == PadSide::left ? rows - length : 0);
    before += page_size_ > 0 ? pages_of(problem, length) : length;
  }
}

std::int64_t ElementPlaces::offset(std::int64_t b, std::int64_t i, std::int64_t head) const {
  if (page_size_ > 0) {
    const std::int64_t page = scattered(first_[static_cast<std::size_t>(b)] + i / page_size_, pool_);
    return page * strides_.batch + i % page_size_ * strides_.seq + head * strides_.head;
  }
  return (packed_ ? 0 : b * strides_.batch) + row(b, i) * strides_.seq + head * strides_.head;
}

std::int64_t offset_of(const Problem& problem, TensorId id, std::int64_t b, std::int64_t i, std::int64_t head) {
  return ElementPlaces(problem, id).offset(b, i, head);
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// Extents, strides and element offsets of the tensors of a Problem.
#include "reference/problem/layout.h"

#include <numeric>

namespace attest {
namespace {

bool has_value_width(TensorId id) {
  return id == TensorId::v || id == TensorId::o || id == TensorId::d_o || id == TensorId::dv;
}

std::int64_t length_of(const Problem& problem, TensorId id, std::int64_t b) {
  return (is_query_side(id) ? problem.seq_q : problem.seq_k)[static_cast<std::size_t>(b)];
}

}  // namespace

bool is_query_side(TensorId id) {
  return id == TensorId::q || id == TensorId::o || id == TensorId::d_o || id == TensorId::dq;
}

bool is_output(TensorId id) {
  return id == TensorId::o || id == TensorId::dq || id == TensorId::dk || id == TensorId::dv;
}

Extents extents_of(const Problem& problem, TensorId id) {
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

std::int64_t offset_of(const Problem& problem, TensorId id, std::int64_t b, std::int64_t i, std::int64_t head) {
  const Strides strides = strides_of(problem, id);
  const std::int64_t batch = problem.layout == Layout::thd ? 0 : b * strides.batch;
  return batch + row_of_token(problem, id, b, i) * strides.seq + head * strides.head;
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// How each input family fills one row (one token of one head) of q, k, v or d_o, before rounding to the storage type.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "reference/problem/input_random.h"
#include "reference/problem/inputs.h"
#include "reference/problem/problem.h"

namespace attest {

/// Token i of sequence b and a head of the tensor.
struct RowPosition {
  std::int64_t b;
  std::int64_t i;
  std::int64_t h;
  auto operator<=>(const RowPosition&) const = default;
};

/// The rows of one tensor: which of them share their storage, and the random stream of each.
class RowSource {
 public:
  RowSource(const Problem& problem, TensorId id);

  TensorId id() const { return id_; }
  bool has_shared_rows() const { return one_batch_ || one_row_ || one_head_; }
  /// The row whose elements this one has: itself, unless a dimension has stride 0.
  RowPosition representative(RowPosition at) const;
  RandomStream stream(RowPosition representative) const {
    return base_.child(static_cast<std::uint64_t>(representative.b))
        .child(static_cast<std::uint64_t>(representative.i))
        .child(static_cast<std::uint64_t>(representative.h));
  }

 private:
  const Problem& problem_;
  TensorId id_;
  RandomStream base_;
  bool one_batch_, one_row_, one_head_;
};

/// One row to be filled.
struct InputRow {
  const Problem& problem;
  const RowSource& keys;  // the rows of k, for a query that is made to match one
  double parameter;       // of the family
  TensorId id;
  RowPosition at;  // representative
  RandomStream random;
  std::span<double> values;  // [D] or [Dv]
};

/// First and last key that query i may see by causal and window alone: where a needle is worth placing. This is no mask,
/// only a hint; the oracle's visibility decides what counts.
std::pair<std::int64_t, std::int64_t> likely_keys(const Problem& problem, RowPosition at);

using FillRow = void (*)(const InputRow& row);

/// The function of a family that is generated (not captured).
FillRow fill_row_of(const Family& family);

/// Number of the random stream of a tensor or operand: one per purpose, so that none are correlated.
enum class StreamTag : std::uint64_t { q = 1, k, v, d_o, d_lse, bias, bias_hide, mask, mask_rows, block_mask };

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// What a diagnosis looks at: a Problem, its inputs and whatever outputs there are, as rows where they lie in storage.
// Rows are read on demand, so that a memory-mapped capture is never copied whole.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "reference/oracle/numerics_profile.h"
#include "reference/problem/inputs.h"
#include "reference/problem/layout.h"
#include "reference/problem/problem.h"

namespace attest::diagnose {

/// A query row.
struct RowAt {
  std::int64_t b = 0;
  std::int64_t h = 0;
  std::int64_t i = 0;
};

/// One tensor, read row by row in storage coordinates (b, row, head): padded rows, or rows of a packed tensor.
class TensorRows {
 public:
  TensorRows() = default;
  /// Elements of `type` at `data`, row-major with these strides; a packed tensor has a batch extent of 1.
  TensorRows(const std::byte* data, Dtype type, Extents extents, Strides strides)
      : data_(data), type_(type), extents_(extents), strides_(strides) {}
  /// Only the real tokens of `id`, as in Inputs; rows outside of them read as NaN, which is what Attest puts there.
  TensorRows(const Problem& problem, TensorId id, std::span<const double> values);

  bool present() const { return data_ != nullptr; }
  Dtype type() const { return type_; }
  const Extents& extents() const { return extents_; }
  /// Elements from `data` on, without stride gaps.
  std::int64_t elements() const { return extents_.batch * extents_.rows * extents_.heads * extents_.width; }
  const std::byte* data() const { return data_; }
  const Strides& strides() const { return strides_; }

  /// Values in memory by token: there is no storage of padding to look at.
  bool by_token() const { return by_token_; }
  /// False for padding of tensors that are kept by token.
  bool has_row(std::int64_t b, std::int64_t row) const;
  /// NaN in `out` where a row holds no token of tensors that are kept by token. False, and NaN, outside of the tensor,
  /// where nobody knows what a kernel would read.
  bool read(std::int64_t b, std::int64_t row, std::int64_t head, std::span<double> out) const;

 private:
  std::int64_t token_at(std::int64_t b, std::int64_t row) const;  // -1: none

  const std::byte* data_ = nullptr;
  Dtype type_ = Dtype::f64;
  Extents extents_ = {};
  Strides strides_ = {};
  bool by_token_ = false;
  std::vector<std::int64_t> first_row_;    // [B] of the real tokens, where stored by token and padded
  std::vector<std::int64_t> first_token_;  // [B]
  std::vector<std::int64_t> length_;       // [B]
};

/// LSE and its gradient are tensors of width 1 here.
struct Evidence {
  Problem problem;
  Inputs operands;                    // bias, mask, block_mask and alibi_slopes; the tensors are below
  std::array<TensorRows, 8> tensors;  // by TensorId; outputs may be absent
  TensorRows lse;                     // [B, Sq, Hq, 1]
  TensorRows d_lse;                   // [B, Sq, Hq, 1]
  TensorRows d_bias;                  // [B|1, Sq|1, Hq|1, Sk|1], as the bias
  NumericsProfile numerics;           // of the kernel that made the outputs, declared or assumed

  const TensorRows& of(TensorId id) const { return tensors[static_cast<std::size_t>(id)]; }
  bool has_forward() const { return of(TensorId::o).present() || lse.present(); }
  bool has_gradients() const;
};

/// Evidence over values in memory, which must outlive it: what `attest verify` has of a case.
struct HeldOutputs {
  const Values* o = nullptr;              // [tokens_q, Hq, Dv]
  const std::vector<double>* lse = nullptr;  // [tokens_q, Hq]
  const Values* dq = nullptr;             // [tokens_q, Hq, D]
  const Values* dk = nullptr;             // [tokens_k, Hkv, D]
  const Values* dv = nullptr;             // [tokens_k, Hkv, Dv]
  const Operand<double>* d_bias = nullptr;  // as the bias
};
Evidence evidence_of(const Problem& problem, const Inputs& inputs, const HeldOutputs& outputs,
                     const NumericsProfile& numerics);

/// An operand or its gradient, [B|1, Hq|1, Sq|1, Sk|1] contiguous, as rows (b, i, h) over keys.
TensorRows operand_rows(const std::byte* data, Dtype type, const Operand<double>& shape);

}  // namespace attest::diagnose

// SPDX-License-Identifier: Apache-2.0
#include "reference/diagnose/evidence.h"

#include <algorithm>
#include <limits>

#include "reference/problem/values.h"

namespace attest::diagnose {

TensorRows::TensorRows(const Problem& problem, TensorId id, std::span<const double> values)
    : data_(reinterpret_cast<const std::byte*>(values.data())), type_(Dtype::f64), extents_(extents_of(problem, id)),
      by_token_(true), length_(is_query_side(id) ? problem.seq_q : problem.seq_k) {
  const std::int64_t tokens = is_query_side(id) ? problem.total_q() : problem.total_k();
  const std::int64_t rows = std::max<std::int64_t>(tokens * extents_.heads, 1);
  extents_.width = static_cast<std::int64_t>(values.size()) / rows;
  strides_ = {.batch = 0, .seq = extents_.heads * extents_.width, .head = extents_.width};
  first_token_ = token_offsets(length_);
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    first_row_.push_back(problem.layout == Layout::thd ? first_token_[b] : row_of_token(problem, id, b, 0));
  }
}

std::int64_t TensorRows::token_at(std::int64_t b, std::int64_t row) const {
  if (extents_.batch == 1 && length_.size() > 1) return row < first_token_.back() ? row : -1;  // packed: rows are tokens
  if (b >= static_cast<std::int64_t>(length_.size())) return -1;
  const std::int64_t token = row - first_row_[b];
  return token >= 0 && token < length_[b] ? first_token_[b] + token : -1;
}

bool TensorRows::has_row(std::int64_t b, std::int64_t row) const { return !by_token_ || token_at(b, row) >= 0; }

bool TensorRows::read(std::int64_t b, std::int64_t row, std::int64_t head, std::span<double> out) const {
  const bool inside = row >= 0 && row < extents_.rows && head >= 0 && head < extents_.heads && b >= 0;
  std::int64_t at = -1;
  if (inside && by_token_) {
    at = token_at(b, row);
    if (at >= 0) at = at * strides_.seq + head * strides_.head;
  } else if (inside && (extents_.batch == 1 || b < extents_.batch)) {
    at = (extents_.batch == 1 ? 0 : b) * strides_.batch + row * strides_.seq + head * strides_.head;
  }
  if (at < 0) {
    std::fill(out.begin(), out.end(), std::numeric_limits<double>::quiet_NaN());
    return inside;
  }
  load_all(type_, data_ + at * format_of(type_).bytes, out);
  return true;
}

bool Evidence::has_gradients() const {
  return of(TensorId::dq).present() || of(TensorId::dk).present() || of(TensorId::dv).present() || d_bias.present();
}

Evidence evidence_of(const Problem& problem, const Inputs& inputs, const HeldOutputs& outputs,
                     const NumericsProfile& numerics) {
  Evidence evidence;
  evidence.problem = problem;
  evidence.numerics = numerics;
  evidence.operands.bias = inputs.bias;
  evidence.operands.mask = inputs.mask;
  evidence.operands.block_mask = inputs.block_mask;
  evidence.operands.alibi_slopes = inputs.alibi_slopes;
  const auto hold = [&](TensorId id, const Values* values) {
    if (values == nullptr || values->empty()) return;
    evidence.tensors[static_cast<std::size_t>(id)] = TensorRows(problem, id, values->data);
  };
  hold(TensorId::q, &inputs.q);
  hold(TensorId::k, &inputs.k);
  hold(TensorId::v, &inputs.v);
  hold(TensorId::d_o, &inputs.d_o);
  hold(TensorId::o, outputs.o);
  hold(TensorId::dq, outputs.dq);
  hold(TensorId::dk, outputs.dk);
  hold(TensorId::dv, outputs.dv);
  if (outputs.lse != nullptr && !outputs.lse->empty()) evidence.lse = TensorRows(problem, TensorId::o, *outputs.lse);
  if (!inputs.d_lse.empty()) evidence.d_lse = TensorRows(problem, TensorId::o, inputs.d_lse);
  if (outputs.d_bias != nullptr && !outputs.d_bias->empty()) {
    evidence.d_bias = operand_rows(reinterpret_cast<const std::byte*>(outputs.d_bias->data.data()), Dtype::f64, inputs.bias);
  }
  return evidence;
}

TensorRows operand_rows(const std::byte* data, Dtype type, const Operand<double>& shape) {
  const Extents extents = {.batch = shape.extent_b, .rows = shape.extent_q, .heads = shape.extent_h, .width = shape.extent_k};
  const Strides strides = {.batch = shape.extent_h * shape.extent_q * shape.extent_k, .seq = shape.extent_k, .head = shape.extent_q * shape.extent_k};
  return {data, type, extents, strides};
}

}  // namespace attest::diagnose

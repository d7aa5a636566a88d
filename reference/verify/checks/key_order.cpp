// SPDX-License-Identifier: Apache-2.0
// Softmax knows no order: keys, values, and the columns of bias and mask in the opposite order give the same o, lse and dq,
// and dk and dv in that order.
#include "reference/verify/checks/check_units.h"
#include "reference/verify/checks/compare.h"

#include <algorithm>

namespace attest {
namespace {

void reverse_keys(Values& values, const std::vector<std::int64_t>& lengths) {
  if (values.empty()) return;
  const std::int64_t row = values.heads * values.width;
  std::int64_t first = 0;
  for (const std::int64_t length : lengths) {
    for (std::int64_t j = 0; j < length / 2; ++j) {
      const auto a = values.data.begin() + static_cast<std::ptrdiff_t>((first + j) * row);
      const auto b = values.data.begin() + static_cast<std::ptrdiff_t>((first + length - 1 - j) * row);
      std::swap_ranges(a, a + static_cast<std::ptrdiff_t>(row), b);
    }
    first += length;
  }
}

template <typename T>
void reverse_columns(Operand<T>& operand) {
  if (operand.extent_k <= 1) return;
  for (std::size_t at = 0; at < operand.data.size(); at += static_cast<std::size_t>(operand.extent_k)) {
    std::reverse(operand.data.begin() + static_cast<std::ptrdiff_t>(at),
                 operand.data.begin() + static_cast<std::ptrdiff_t>(at) + static_cast<std::ptrdiff_t>(operand.extent_k));
  }
}

CheckResult run(const CheckContext& context) {
  const Problem& p = context.problem();
  if (p.causal != Causal::none || p.window || p.block || p.alibi) return CheckResult::not_applicable("the place of a key counts");
  if (p.dropout && p.dropout->p > 0) return CheckResult::not_applicable("the dropout mask counts keys");
  if (is_expanded(p, TensorId::k) || is_expanded(p, TensorId::v)) return CheckResult::not_applicable("k or v is expanded");
  const bool ragged = std::ranges::any_of(p.seq_k, [&](std::int64_t length) { return length != p.seq_k.front(); });
  if (ragged && (p.bias || p.mask)) return CheckResult::not_applicable("columns of bias or mask that sequences share");
  Inputs inputs = context.inputs();
  ExactWithBounds truth = context.truth();
  for (Values* values : {&inputs.k, &inputs.v, &truth.exact.dk, &truth.exact.dv, &truth.bounds.dk, &truth.bounds.dv}) {
    reverse_keys(*values, p.seq_k);
  }
  reverse_columns(inputs.bias);
  reverse_columns(inputs.mask);
  reverse_columns(truth.exact.d_bias);
  reverse_columns(truth.bounds.d_bias);
  CheckResult result;
  expect_truth(p, truth, context.run(p, inputs, truth.exact), "with the keys in the opposite order", result);
  return result;
}

}  // namespace

const CheckUnit kKeyOrder = {"key-order", "keys in another order give the same rows", "K01 K11 K19 K28 M01 M02", 1, run};

}  // namespace attest

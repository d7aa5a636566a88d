// SPDX-License-Identifier: Apache-2.0
// The gradient of the bias, summed in place over whatever the bias broadcasts. The bias is added after the softcap,
// so its gradient is P o (dP - delta) without the softcap's derivative.
#pragma once

#include <cstdint>

#include "reference/models/head.h"

namespace attest {

/// dBias := 0 everywhere the operand has an element, before tiles add to it: also where it broadcasts (stride 0) over
/// a dimension that is empty.
template <typename Real>
void clear_d_bias(const CallView& view) {
  const attest_operand& to = view.call().d_bias;
  const attest_problem& problem = view.problem();
  const auto extent = [](std::int64_t stride, std::int64_t count) { return stride == 0 ? 1 : count; };
  for (std::int64_t b = 0; b < extent(to.stride_batch, problem.batch); ++b)
    for (std::int64_t h = 0; h < extent(to.stride_head, problem.heads_q); ++h)
      for (std::int64_t i = 0; i < extent(to.stride_query, problem.max_q); ++i)
        for (std::int64_t j = 0; j < extent(to.stride_key, problem.max_k); ++j)
          static_cast<Real*>(
              to.data)[b * to.stride_batch + h * to.stride_head + i * to.stride_query + j * to.stride_key] = 0;
}

/// Adds row i, keys [j, j + cols).
template <typename Real>
void add_d_bias_row(const Head<Real>& head, std::int64_t i, std::int64_t j, const Real* from, std::int64_t cols) {
  const attest_operand& to = head.view().call().d_bias;
  Real* row =
      static_cast<Real*>(to.data) + head.b() * to.stride_batch + head.h() * to.stride_head + i * to.stride_query;
  for (std::int64_t c = 0; c < cols; ++c) row[(j + c) * to.stride_key] += from[c];
}

}  // namespace attest

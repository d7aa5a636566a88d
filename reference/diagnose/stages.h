// SPDX-License-Identifier: Apache-2.0
// The stages of the runbook that look at masks and values, in its order. Each adds its lines. Where a stage looks at a
// part only, its line says so.
#pragma once

#include "reference/diagnose/evidence.h"
#include "reference/diagnose/explain.h"
#include "reference/diagnose/findings.h"

namespace attest::diagnose {

void check_coverage(const Evidence& evidence, Lines& lines);
void check_non_finite_inputs(const Evidence& evidence, Lines& lines);
/// Score range, scale and dropout: all from rows spread over the call.
void check_scores(const Evidence& evidence, Lines& lines);
/// The largest bound that a right kernel has.
void check_expected_bound(const Evidence& evidence, Lines& lines);
/// Where NaN and infinities of the outputs come from.
void trace_non_finite_outputs(const Evidence& evidence, Lines& lines);
/// Which rows, keys, heads and sequences are wrong, and the tile size that they point to.
void locate_errors(const Evidence& evidence, const Explanation& explanation, Lines& lines);
/// Which step of the backward the right and wrong gradients point to.
void point_to_cause(const Fit& contract, Lines& lines);

/// Places of elements that are not finite; finds all, keeps the first of each row.
struct NonFinite {
  std::int64_t nan = 0;
  std::int64_t infinite = 0;
  struct Row {
    std::int64_t b, row, h;
    std::int64_t column;
  };
  std::vector<Row> rows;  // at most kKeptRows, the first and then ever more widely spread ones
  std::int64_t all_rows = 0;
};
NonFinite find_non_finite(const TensorRows& tensor, Layout layout);

/// The sequence and token of a storage row; false in padding and past the last offset.
bool token_of(const Problem& problem, bool query_side, const NonFinite::Row& row, RowAt& at);

}  // namespace attest::diagnose

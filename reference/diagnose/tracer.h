// SPDX-License-Identifier: Apache-2.0
// The cause of one element that is not finite, by the contract.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "reference/diagnose/evaluate.h"
#include "reference/diagnose/stages.h"

namespace attest::diagnose {

struct Cause {
  std::string what;  // empty: not found
  std::string fix;
  bool right = false;  // the contract wants it
};

/// A row of an output with an element that is not finite: of a query (o, lse, dq), of a key (dk, dv), or of dbias.
class Tracer {
 public:
  explicit Tracer(const Evidence& evidence);

  Cause of_query_row(TensorId id, bool lse, const NonFinite::Row& found, const RowAt& at) const;
  Cause of_key_row(TensorId id, const NonFinite::Row& found, const RowAt& at) const;  // at: (b, head_kv, j)
  Cause of_bias_row(const NonFinite::Row& found) const;

 private:
  bool unwritten(const TensorRows& tensor, const NonFinite::Row& at) const;
  Cause of_inputs(const SoftRow& row, const RowAt& at, bool gradient) const;
  Cause of_forward(const RowAt& at) const;
  Cause of_keys(const SoftRow& row, const RowAt& at, TensorId id, bool lse, std::int64_t column) const;
  Cause of_range(const SoftRow& row) const;
  Cause of_row(TensorId id, bool lse, const SoftRow& row, const RowAt& at, std::int64_t column, double value) const;
  Cause of_queries(TensorId id, const RowAt& at) const;
  /// dk or dv by the contract; nothing where the head costs too much.
  bool exact_of_key(TensorId id, const RowAt& at, std::int64_t column, double& value) const;

  const Evidence& e_;
  const Problem& p_;
  Evaluator evaluator_;
  Reading contract_;
  mutable std::mutex mutex_;
  mutable std::map<std::pair<std::int64_t, std::int64_t>, std::shared_ptr<const ColumnResult>> heads_;
  mutable double head_work_ = 0;
};

}  // namespace attest::diagnose

// SPDX-License-Identifier: Apache-2.0
// Row i does not depend, in any bit, on keys that it cannot see: all keys from one on change (their values, not their
// number), and every row that sees none of them must keep its o, lse and dq.
#include "reference/verify/checks/check_units.h"
#include "reference/verify/checks/compare.h"

#include <algorithm>

#include <fmt/format.h>

#include "reference/oracle/visibility.h"

namespace attest {
namespace {

CheckResult run(const CheckContext& context) {
  const Problem& p = context.problem();
  if (is_expanded(p, TensorId::k) || is_expanded(p, TensorId::v)) return CheckResult::not_applicable("k or v is expanded");
  std::vector<std::int64_t> candidates;
  for (std::int64_t b = 0; b < p.batch(); ++b) {
    if (p.seq_q[b] > 0 && p.seq_k[b] > 0) candidates.push_back(b);
  }
  if (candidates.empty()) return CheckResult::not_applicable("no sequence has queries and keys");
  const std::int64_t b = candidates[static_cast<std::size_t>(context.below(static_cast<std::int64_t>(candidates.size()), "prefix"))];
  std::int64_t first_range = p.seq_k[b];
  for (std::int64_t i = 0; i < p.seq_q[b]; ++i) first_range = std::min(first_range, std::max(key_range(p, b, i).last, std::int64_t{0}));
  if (first_range >= p.seq_k[b]) return CheckResult::not_applicable("every row may see the last key");
  const std::int64_t from = first_range + context.below(p.seq_k[b] - first_range, "prefix", 1);
  Inputs inputs = context.inputs();
  const std::int64_t first_token = token_offsets(p.seq_k)[b];
  for (std::int64_t j = from; j < p.seq_k[b]; ++j) {
    for (std::int64_t kv = 0; kv < p.heads_kv; ++kv) {
      for (double& x : inputs.k.row(first_token + j, kv)) x = -x;
      for (double& x : inputs.v.row(first_token + j, kv)) x = x == 0 ? 1 : -x;
    }
  }
  Compared rows;
  rows.queries = [&](std::int64_t at, std::int64_t, std::int64_t i) { return at != b || key_range(p, b, i).last <= from; };
  rows.keys = [&](std::int64_t at, std::int64_t, std::int64_t) { return at != b; };
  CheckResult result;
  expect_repeats(context, context.run(p, inputs, context.truth().exact), fmt::format("with other keys from key {} of sequence {} on", from, b), result, rows);
  return result;
}

}  // namespace

const CheckUnit kPrefix = {"prefix", "a row keeps its bits when keys that it cannot see change", "K06 K07 M07 M08", 1, run};

}  // namespace attest

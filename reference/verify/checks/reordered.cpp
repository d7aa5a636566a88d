// SPDX-License-Identifier: Apache-2.0
// The sequences and key/value heads in the opposite order give the same answers in that order.
#include "reference/verify/checks/check_units.h"
#include "reference/verify/checks/compare.h"

#include "reference/verify/checks/selection.h"

namespace attest {
namespace {

CheckResult run(const CheckContext& context) {
  const Problem& p = context.problem();
  if (p.batch() * p.heads_kv == 1) return CheckResult::not_applicable("nothing to reorder");
  if (p.dropout && p.dropout->p > 0) return CheckResult::not_applicable("the dropout mask counts sequences and heads");
  std::vector<std::int64_t> sequences;
  std::vector<std::int64_t> heads;
  for (std::int64_t b = p.batch(); b-- > 0;) sequences.push_back(b);
  for (std::int64_t h = p.heads_kv; h-- > 0;) heads.push_back(h);
  const Selection chosen = select(context, sequences, heads);
  if (const std::string why = context.kernel().why_unsupported(chosen.problem); !why.empty()) return CheckResult::not_applicable(why);
  if (!same_numerics(context, chosen.problem)) return CheckResult::not_applicable("other arithmetic, hence other bounds");
  CheckResult result;
  expect_truth(chosen.problem, chosen.truth, context.run(chosen.problem, chosen.inputs, chosen.truth.exact),
               "sequences and heads in the opposite order", result);
  return result;
}

}  // namespace

const CheckUnit kReordered = {"reordered", "sequences and heads in another order give the same answers", "K02 K03 K04 K09 M18 M19 M20", 1, run};

}  // namespace attest

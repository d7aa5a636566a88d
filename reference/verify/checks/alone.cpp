// SPDX-License-Identifier: Apache-2.0
// One sequence, or one key/value head with its group, as a case of its own gives what it gave among the others.
#include "reference/verify/checks/check_units.h"
#include "reference/verify/checks/compare.h"

#include <fmt/format.h>

#include "reference/verify/checks/selection.h"

namespace attest {
namespace {

CheckResult run(const CheckContext& context) {
  const Problem& p = context.problem();
  if (p.batch() * p.heads_kv == 1) return CheckResult::not_applicable("it is alone already");
  if (p.dropout && p.dropout->p > 0) return CheckResult::not_applicable("the dropout mask counts sequences and heads");
  std::vector<std::int64_t> sequences;
  std::vector<std::int64_t> heads;
  const bool one_sequence = p.batch() > 1 && (p.heads_kv == 1 || context.below(2, "alone") == 0);
  if (one_sequence) {
    sequences.push_back(context.below(p.batch(), "alone", 1));
    for (std::int64_t h = 0; h < p.heads_kv; ++h) heads.push_back(h);
  } else {
    for (std::int64_t b = 0; b < p.batch(); ++b) sequences.push_back(b);
    heads.push_back(context.below(p.heads_kv, "alone", 1));
  }
  const Selection chosen = select(context, sequences, heads);
  if (const std::string why = context.kernel().why_unsupported(chosen.problem); !why.empty()) return CheckResult::not_applicable(why);
  if (!same_numerics(context, chosen.problem)) return CheckResult::not_applicable("other arithmetic, hence other bounds");
  CheckResult result;
  expect_truth(chosen.problem, chosen.truth, context.run(chosen.problem, chosen.inputs, chosen.truth.exact),
               one_sequence ? fmt::format("sequence {} alone", sequences[0]) : fmt::format("key/value head {} alone", heads[0]), result);
  return result;
}

}  // namespace

const CheckUnit kAlone = {"alone", "a sequence, and a key/value head, gives the same answer alone as among others", "K03 K04 K09 K18 K19 M19", 0.5, run};

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// A sequence, and a key/value head with its group, does not depend on its neighbours: all others are overwritten with
// NaN, and the chosen one must keep its bits.
#include "reference/verify/checks/check_units.h"
#include "reference/verify/checks/compare.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace attest {
namespace {

void fill_others(Values& values, const std::vector<std::int64_t>& lengths, std::int64_t b, std::int64_t head, std::int64_t group) {
  std::int64_t token = 0;
  for (std::size_t at = 0; at < lengths.size(); ++at) {
    for (std::int64_t i = 0; i < lengths[at]; ++i, ++token) {
      for (std::int64_t h = 0; h < values.heads; ++h) {
        if (static_cast<std::int64_t>(at) == b && h / group == head) continue;
        std::ranges::fill(values.row(token, h), std::numeric_limits<double>::quiet_NaN());
      }
    }
  }
}

CheckResult run(const CheckContext& context) {
  const Problem& p = context.problem();
  if (p.batch() * p.heads_kv == 1) return CheckResult::not_applicable("one sequence of one key/value head has no neighbours");
  for (const TensorId id : {TensorId::q, TensorId::k, TensorId::v, TensorId::d_o}) {
    if (is_expanded(p, id)) return CheckResult::not_applicable("an expanded tensor shares its elements with the neighbours");
  }
  const std::int64_t b = context.below(p.batch(), "neighbours");
  const std::int64_t kv = context.below(p.heads_kv, "neighbours", 1);
  Inputs inputs = context.inputs();
  fill_others(inputs.q, p.seq_q, b, kv, p.group());
  fill_others(inputs.k, p.seq_k, b, kv, 1);
  fill_others(inputs.v, p.seq_k, b, kv, 1);
  if (p.wants_backward()) fill_others(inputs.d_o, p.seq_q, b, kv, p.group());
  Compared rows;
  rows.queries = [&](std::int64_t at, std::int64_t h, std::int64_t) { return at == b && h / p.group() == kv; };
  rows.keys = [&](std::int64_t at, std::int64_t h, std::int64_t) { return at == b && h == kv; };
  CheckResult result;
  expect_repeats(context, context.run(p, inputs, context.truth().exact),
                 fmt::format("with NaN in all but key/value head {} of sequence {}", kv, b), result, rows);
  return result;
}

}  // namespace

const CheckUnit kNeighbours = {"neighbours", "a sequence and a head keep their bits whatever their neighbours hold", "K03 K05 K09 K15 M18 M19", 1, run};

}  // namespace attest

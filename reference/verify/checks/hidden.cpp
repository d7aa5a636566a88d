// SPDX-License-Identifier: Apache-2.0
// What is hidden must not matter: the case again with NaN, infinities or huge values in keys that nobody may see, in
// padding, gaps, what is past the last offset, in workspace and in the outputs before the call.
#include "reference/verify/checks/check_units.h"
#include "reference/verify/checks/compare.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "reference/problem/dtype.h"

namespace attest {
namespace {

double poison_value(Poison poison, Dtype type) {
  switch (poison) {
    case Poison::nan: return std::numeric_limits<double>::quiet_NaN();
    case Poison::zero: return 0;
    case Poison::infinite: return std::numeric_limits<double>::infinity();
    case Poison::minus_infinite: return -std::numeric_limits<double>::infinity();
    case Poison::huge: break;
  }
  return format_of(type).max;
}

CheckResult run(const CheckContext& context) {
  const Problem& p = context.problem();
  const auto poison = static_cast<Poison>(context.below(5, "hidden"));
  Inputs inputs = context.inputs();
  const std::vector<char> unseen = unseen_keys(p, inputs);  // [tokens_k, Hkv]
  const double value = poison_value(poison, p.dtype);
  std::int64_t keys = 0;
  for (std::int64_t token = 0; token < p.total_k(); ++token) {
    for (std::int64_t kv = 0; kv < p.heads_kv; ++kv) {
      if (unseen[static_cast<std::size_t>(token * p.heads_kv + kv)] == 0) continue;
      ++keys;
      if (!is_expanded(p, TensorId::k)) std::ranges::fill(inputs.k.row(token, kv), value);
      if (!is_expanded(p, TensorId::v)) std::ranges::fill(inputs.v.row(token, kv), value);
    }
  }
  CheckResult result;
  const std::string when = fmt::format("with {} in {} unseen key rows, padding, gaps and workspace", name_of(poison), keys);
  expect_repeats(context, context.run(p, inputs, context.truth().exact, {poison}), when, result);
  return result;
}

}  // namespace

const CheckUnit kHidden = {"hidden", "what is hidden changes no bit: unseen keys, padding, gaps, workspace, old outputs",
                           "K05 K15 K20 K28 M13 M14 M33", 1, run};

}  // namespace attest

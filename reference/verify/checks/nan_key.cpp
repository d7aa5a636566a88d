// SPDX-License-Identifier: Apache-2.0
// NaN in one key makes the rows that see it NaN and no others; the others keep their bits. Forward only: through those
// rows the backward reaches every key.
#include "reference/verify/checks/check_units.h"
#include "reference/verify/checks/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "reference/oracle/visibility.h"

namespace attest {
namespace {

struct Key {
  std::int64_t b, j, kv;
};

CheckResult run(const CheckContext& context) {
  Problem p = context.problem();
  if (!p.wants_forward()) return CheckResult::not_applicable("backward only");
  if (p.dropout && p.dropout->p > 0) return CheckResult::not_applicable("a dropped key may count as seen or not");
  if (p.total_k() == 0) return CheckResult::not_applicable("no keys");
  p.direction = Direction::forward;
  p.d_lse = p.d_bias = false;
  if (!context.kernel().why_unsupported(p).empty()) return CheckResult::not_applicable("forward alone is not supported");
  const std::int64_t token = context.below(p.total_k(), "nan-key");
  const std::vector<std::int64_t> offsets = token_offsets(p.seq_k);
  Key key{0, 0, context.below(p.heads_kv, "nan-key", 1)};
  while (offsets[key.b + 1] <= token) ++key.b;
  key.j = token - offsets[key.b];
  Inputs inputs = context.inputs();
  const bool in_v = context.below(2, "nan-key", 2) == 1;
  if (is_expanded(p, in_v ? TensorId::v : TensorId::k)) return CheckResult::not_applicable("an expanded tensor has no key of its own");
  std::ranges::fill((in_v ? inputs.v : inputs.k).row(token, key.kv), std::numeric_limits<double>::quiet_NaN());

  CheckResult result;
  const std::string when = fmt::format("with NaN in {} of [b={} h={} j={}]", in_v ? "v" : "k", key.b, key.kv, key.j);
  const KernelRun got = context.run(p, inputs, context.truth().exact);
  const auto in_group = [&](std::int64_t b, std::int64_t h) { return b == key.b && h / p.group() == key.kv; };
  const auto sees = [&](std::int64_t h, std::int64_t i) { return visible(p, context.inputs(), key.b, h, i, key.j); };
  // A row whose bias hides the key may go either way.
  Compared rows;
  rows.backward = false;
  rows.queries = [&](std::int64_t b, std::int64_t h, std::int64_t i) { return !in_group(b, h) || !sees(h, i); };
  expect_repeats(context, got, when, result, rows);
  if (!got.judgeable()) return result;
  const std::int64_t first = token_offsets(p.seq_q)[key.b];
  for (std::int64_t i = 0; i < p.seq_q[key.b]; ++i) {
    for (std::int64_t h = key.kv * p.group(); h < (key.kv + 1) * p.group(); ++h) {
      if (!sees(h, i) || (p.bias && std::isinf(inputs.bias.at(key.b, h, i, key.j)))) continue;
      const auto o = got.outputs.o.row(first + i, h);
      const bool o_is_nan = std::ranges::all_of(o, [](double x) { return std::isnan(x); });
      const bool lse_is_nan = in_v || std::isnan(got.outputs.lse[static_cast<std::size_t>((first + i) * p.heads_q + h)]);
      if (o_is_nan && lse_is_nan) continue;
      result.findings.push_back({"", o_is_nan ? "lse" : "o", fmt::format("{}: row [b={} h={} i={}] sees it and is not NaN", when, key.b, h, i)});
      return result;
    }
  }
  return result;
}

}  // namespace

const CheckUnit kNanKey = {"nan-key", "NaN in one key makes exactly the rows that see it NaN", "K05 K06 K07 K22 K27 M10 M14", 0.3, run};

}  // namespace attest

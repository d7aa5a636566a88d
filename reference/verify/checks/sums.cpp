// SPDX-License-Identifier: Apache-2.0
// Sums that hold whatever the scores are. Without dropout the rows of P add up to 1: the columns of dv add up to those of
// do over the rows that see a key, and v = 1 gives o = 1, and, as every dP of a row is then the same, no dq and dk. With or
// without dropout dS of a row adds up to dlse: the gradient of a bias of one entry for each row.
#include "reference/verify/checks/check_units.h"
#include "reference/verify/checks/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace attest {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

/// The first column of a head of a sequence in which dv does not add up, by the bounds of all elements added.
void expect_columns_of_dv(const CheckContext& context, CheckResult& result) {
  const Problem& p = context.problem();
  const Exact& exact = context.truth().exact;
  const double terms = static_cast<double>(p.max_q() * p.group() + p.max_k());
  std::int64_t query = 0, key = 0;
  for (std::int64_t b = 0; b < p.batch(); query += p.seq_q[static_cast<std::size_t>(b)], key += p.seq_k[static_cast<std::size_t>(b)], ++b) {
    for (std::int64_t kv = 0; kv < p.heads_kv; ++kv) {
      for (std::int64_t d = 0; d < p.width_v(); ++d) {
        double got = 0, want = 0, bound = 0, size = 0;
        for (std::int64_t j = key; j < key + p.seq_k[static_cast<std::size_t>(b)]; ++j) {
          got += context.base().dv.at(j, kv, d);
          bound += context.truth().bounds.dv.at(j, kv, d);
          size += std::abs(exact.dv.at(j, kv, d));
        }
        for (std::int64_t i = query; i < query + p.seq_q[static_cast<std::size_t>(b)]; ++i) {
          for (std::int64_t h = kv * p.group(); h < (kv + 1) * p.group(); ++h) {
            if (exact.lse[static_cast<std::size_t>(i * p.heads_q + h)] == kMinusInfinity) continue;
            want += context.inputs().d_o.at(i, h, d);
            size += std::abs(context.inputs().d_o.at(i, h, d));
          }
        }
        bound += size * terms * 0x1p-53;  // of the sums here
        if (!std::isfinite(size) || std::abs(got - want) <= bound) continue;
        result.findings.push_back({"", "dv", fmt::format("column {} of dv of [b={} h={}] adds up to {:.9g}, that of do to {:.9g}, bound {:.3g}",
                                                         d, b, kv, got, want, bound), true});
        return;
      }
    }
  }
}

/// v = 1: o = 1, and the gradients of q and k vanish.
CheckResult run_ones(const CheckContext& context) {
  Problem p = context.problem();
  p.d_lse = false;
  Inputs inputs = context.inputs();
  std::ranges::fill(inputs.v.data, 1.0);
  inputs.d_lse = {};
  if (const std::string why = context.kernel().why_unsupported(p); !why.empty()) return CheckResult::not_applicable(why);
  Exact exact = context.truth().exact;
  for (std::size_t row = 0; row < exact.lse.size(); ++row) {
    const double o = std::isnan(exact.lse[row]) ? exact.lse[row] : exact.lse[row] == kMinusInfinity ? 0 : 1;
    std::fill_n(exact.o.data.begin() + static_cast<std::ptrdiff_t>(row) * static_cast<std::ptrdiff_t>(p.width_v()), p.width_v(), o);
  }
  for (std::vector<double>* gradient : {&exact.dq.data, &exact.dk.data, &exact.d_bias.data}) std::ranges::fill(*gradient, 0.0);
  // All dP of a row are the same number with the same error.
  const ExactWithBounds truth = bounds_around(context, p, inputs, std::move(exact), BoundMode::det);
  CheckResult result;
  expect_truth(p, truth, context.run(p, inputs, truth.exact), "with v = 1", result);
  return result;
}

/// A bias of 0 with one entry for each row: its gradient is the sum of dS over the row.
CheckResult run_rows_of_ds(const CheckContext& context) {
  Problem p = context.problem();
  p.bias = Bias{{true, true, true, false}, {}, 0};
  p.d_bias = true;
  if (const std::string why = context.kernel().why_unsupported(p); !why.empty()) return CheckResult::not_applicable(why);
  Inputs inputs = context.inputs();
  inputs.bias = {p.batch(), p.heads_q, p.max_q(), 1, {}};
  inputs.bias.data.assign(static_cast<std::size_t>(p.batch() * p.heads_q * p.max_q()), 0.0);
  Exact exact = context.truth().exact;
  exact.d_bias = inputs.bias;
  std::size_t at = 0;
  for (std::int64_t b = 0; b < p.batch(); ++b) {
    for (std::int64_t i = 0; i < p.seq_q[static_cast<std::size_t>(b)]; ++i) {
      for (std::int64_t h = 0; h < p.heads_q; ++h, ++at) {
        if (p.d_lse && exact.lse[at] != kMinusInfinity) exact.d_bias.data[exact.d_bias.index(b, h, i, 0)] = inputs.d_lse[at];
      }
    }
  }
  const ExactWithBounds truth = bounds_around(context, p, inputs, std::move(exact));
  CheckResult result;
  expect_truth(p, truth, context.run(p, inputs, truth.exact), "with a bias of 0 for each row", result);
  return result;
}

CheckResult run(const CheckContext& context) {
  const Problem& p = context.problem();
  if (!plain_conventions(context)) return CheckResult::not_applicable("the kernel has another convention for empty rows or lse");
  const bool dropped = p.dropout && p.dropout->p > 0;
  for (const double lse : context.truth().exact.lse) {
    if (!std::isfinite(lse) && lse != kMinusInfinity) return CheckResult::not_applicable("rows that are not finite");
  }
  const bool of_ds = p.wants_backward() && !p.bias && p.max_q() > 0 && (dropped || context.below(2, "sums") == 0);
  if (dropped && !of_ds) return CheckResult::not_applicable("under dropout the rows of P do not add up to 1");
  CheckResult result = of_ds ? run_rows_of_ds(context) : run_ones(context);
  if (p.wants_backward() && !dropped) {
    expect_columns_of_dv(context, result);
    if (result.outcome == Outcome::not_applicable) result.outcome = Outcome::pass;
  }
  return result;
}

}  // namespace

const CheckUnit kSums = {"sums", "rows of P add up to 1 (v = 1, columns of dv), rows of dS to dlse", "K10 K11 K13 K27 M13", 1.5, run};

}  // namespace attest

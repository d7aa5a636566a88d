// SPDX-License-Identifier: Apache-2.0
// More sequences, and more heads, than a grid's y and z dimensions may have (65,535): a tiny case many times over, each
// with the answer of the first. A launch that is refused, or a number that wraps, leaves outputs unwritten or mixed up.
#include "reference/verify/checks/check_units.h"
#include "reference/verify/checks/compare.h"

#include <array>

#include <fmt/format.h>

namespace attest {
namespace {

constexpr std::int64_t kMany = 65'537;  // one more than what 16 bits count
constexpr std::array kOwnCases = {"q=1 k=2 dim=8 fill=normal@23", "dtype=f16 q=1 k=2 dim=64 fill=normal@23",
                                  "dtype=bf16 q=1 k=2 dim=64 fill=normal@23"};

/// One sequence of one head as `sequences` of `heads`, all alike.
Values repeated(const Values& one, std::int64_t sequences, std::int64_t heads) {
  Values many(one.tokens * sequences, heads, one.width);
  if (one.empty()) return {};
  for (std::int64_t token = 0; token < many.tokens; ++token) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const auto row = one.row(token % one.tokens, 0);
      std::copy(row.begin(), row.end(), many.row(token, h).begin());
    }
  }
  return many;
}

std::vector<double> repeated(const std::vector<double>& rows, std::int64_t sequences, std::int64_t heads) {
  Values one(static_cast<std::int64_t>(rows.size()), 1, 1);
  one.data = rows;
  return repeated(one, sequences, heads).data;
}

template <typename T>
void repeat_results(const T& one, std::int64_t sequences, std::int64_t heads, T& many) {
  many.o = repeated(one.o, sequences, heads);
  many.lse = repeated(one.lse, sequences, heads);
  many.dq = repeated(one.dq, sequences, heads);
  many.dk = repeated(one.dk, sequences, heads);
  many.dv = repeated(one.dv, sequences, heads);
}

void run_many(const CheckContext& context, std::int64_t sequences, std::int64_t heads, CheckResult& result) {
  Problem p = context.problem();
  p.seq_q.assign(static_cast<std::size_t>(sequences), p.seq_q[0]);
  p.seq_k.assign(static_cast<std::size_t>(sequences), p.seq_k[0]);
  p.heads_q = p.heads_kv = heads;
  // Processors have no grids: what is left to see there, a number of 16 bits, a forward shows as well.
  if (!context.kernel().on_cuda() && p.wants_forward()) p.direction = Direction::forward;
  if (const std::string why = context.kernel().why_unsupported(p); !why.empty()) {
    result = CheckResult::not_applicable(why);
    return;
  }
  if (!same_numerics(context, p)) {
    result = CheckResult::not_applicable("other arithmetic, hence other bounds");
    return;
  }
  Inputs inputs;
  inputs.q = repeated(context.inputs().q, sequences, heads);
  inputs.k = repeated(context.inputs().k, sequences, heads);
  inputs.v = repeated(context.inputs().v, sequences, heads);
  inputs.d_o = repeated(context.inputs().d_o, sequences, heads);
  ExactWithBounds truth;
  repeat_results(context.truth().exact, sequences, heads, truth.exact);
  repeat_results(context.truth().bounds, sequences, heads, truth.bounds);
  expect_truth(p, truth, context.run(p, inputs, truth.exact), fmt::format("{} sequences of {} heads", sequences, heads), result);
}

CheckResult run(const CheckContext& context) {
  CheckResult result;
  run_many(context, kMany, 1, result);
  if (result.outcome == Outcome::pass && result.findings.empty()) run_many(context, 1, kMany, result);
  return result;
}

}  // namespace

const CheckUnit kGridLimits = {"grid-limits", "65,537 sequences, or heads, give the answer of one", "K04 K16 K23", 2, run, kOwnCases};

}  // namespace attest

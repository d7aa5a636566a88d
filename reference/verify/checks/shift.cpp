// SPDX-License-Identifier: Apache-2.0
// A constant added to every score of a row, by a bias that has one entry for each query: lse moves by the constant, o and
// the gradients stay, and the gradient of the constant is that of lse. The constants go to where exp is 0 or infinite.
#include "reference/verify/checks/check_units.h"
#include "reference/verify/checks/compare.h"

#include <array>
#include <vector>

namespace attest {
namespace {

// Exact in every type of a bias; float's exp of the largest is 0 or infinite.
constexpr std::array kConstants = {-192.0, -96.0, -16.0, 0.0, 16.0, 96.0, 192.0};

/// Calls f(sequence, query, position in lse) for every row.
template <typename F>
void for_rows(const Problem& p, F f) {
  std::size_t at = 0;
  for (std::int64_t b = 0; b < p.batch(); ++b) {
    for (std::int64_t i = 0; i < p.seq_q[static_cast<std::size_t>(b)]; ++i) {
      for (std::int64_t h = 0; h < p.heads_q; ++h, ++at) f(b, i, at);
    }
  }
}

CheckResult run(const CheckContext& context) {
  Problem p = context.problem();
  if (!plain_conventions(context)) return CheckResult::not_applicable("the kernel has another convention for empty rows or lse");
  if (p.bias) return CheckResult::not_applicable("the case has a bias of its own");
  if (p.max_q() == 0) return CheckResult::not_applicable("no queries");
  p.bias = Bias{{false, false, true, false}, {}, 0};
  p.d_bias = p.wants_backward();
  if (p.d_bias && !context.kernel().why_unsupported(p).empty()) p.d_bias = false;
  if (const std::string why = context.kernel().why_unsupported(p); !why.empty()) return CheckResult::not_applicable(why);
  Inputs inputs = context.inputs();
  inputs.bias = {1, 1, p.max_q(), 1, std::vector<double>(static_cast<std::size_t>(p.max_q()), 0.0)};
  for (std::size_t i = 0; i < inputs.bias.data.size(); ++i) {
    inputs.bias.data[i] = kConstants[static_cast<std::size_t>(context.below(std::ssize(kConstants), "shift", i))];
  }
  Exact exact = context.truth().exact;
  if (p.d_bias) exact.d_bias = {1, 1, p.max_q(), 1, std::vector<double>(static_cast<std::size_t>(p.max_q()), 0.0)};
  for_rows(p, [&](std::int64_t b, std::int64_t i, std::size_t at) {
    const bool sees_a_key = exact.lse[at] > -std::numeric_limits<double>::infinity();
    exact.lse[at] += inputs.bias.at(b, 0, i, 0);
    if (p.d_bias && p.d_lse && sees_a_key) exact.d_bias.data[static_cast<std::size_t>(i)] += inputs.d_lse[at];
  });
  const ExactWithBounds truth = bounds_around(context, p, inputs, std::move(exact));
  if (truth.bounds.unspecified > context.truth().bounds.unspecified) return CheckResult::not_applicable("no bound can be stated for such scores");
  CheckResult result;
  expect_truth(p, truth, context.run(p, inputs, truth.exact), "with a constant added to the scores of each row", result);
  return result;
}

}  // namespace

const CheckUnit kShift = {"shift", "a constant added to all scores of a row moves lse by it, and nothing else",
                          "K01 K02 K11 K13 M02 M03 M06 M12", 1.5, run};

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// o is additive in v and the gradients are in do: v as the sum of its even keys and its odd ones, or do of its even queries
// and its odd ones, each in a call of its own with zeros in the other places, add up to the results of one call. Zeros round
// nothing, so the parts are exact inputs; their errors are bounded around exact answers of their own.
#include "reference/verify/checks/check_units.h"
#include "reference/verify/checks/compare.h"

#include <algorithm>

namespace attest {
namespace {

/// Clears the tokens of every sequence whose index has the parity `odd`.
void clear_tokens(Values& values, const std::vector<std::int64_t>& lengths, bool odd) {
  std::int64_t token = 0;
  for (const std::int64_t length : lengths) {
    for (std::int64_t i = 0; i < length; ++i, ++token) {
      if ((i % 2 == 1) != odd) continue;
      for (std::int64_t h = 0; h < values.heads; ++h) std::ranges::fill(values.row(token, h), 0.0);
    }
  }
}

void add(std::vector<double>& sum, const std::vector<double>& other) {
  for (std::size_t n = 0; n < sum.size(); ++n) sum[n] += other[n];
}

struct Part {
  ExactWithBounds truth;
  KernelRun run;
};

bool answer(const CheckContext& context, const Problem& p, const Inputs& inputs, const std::string& when, Part& part, CheckResult& result) {
  part.truth = bounds_around(context, p, inputs, exact_attention(p, inputs));
  part.run = context.run(p, inputs, part.truth.exact);
  return answered(part.run, when, result);
}

/// What is additive, of the second part onto the first one.
void add_up(const Problem& p, bool of_v, Part& sum, const Part& other) {
  if (of_v) add(sum.run.outputs.o.data, other.run.outputs.o.data), add(sum.truth.bounds.o.data, other.truth.bounds.o.data);
  if (of_v) return;
  Outputs& got = sum.run.outputs;
  Bounds& bounds = sum.truth.bounds;
  const Outputs& more = other.run.outputs;
  add(got.dq.data, more.dq.data), add(bounds.dq.data, other.truth.bounds.dq.data);
  add(got.dk.data, more.dk.data), add(bounds.dk.data, other.truth.bounds.dk.data);
  add(got.dv.data, more.dv.data), add(bounds.dv.data, other.truth.bounds.dv.data);
  if (p.d_bias) add(got.d_bias.data, more.d_bias.data), add(bounds.d_bias.data, other.truth.bounds.d_bias.data);
}

CheckResult run(const CheckContext& context) {
  Problem p = context.problem();
  if (!plain_conventions(context)) return CheckResult::not_applicable("the kernel has another convention for empty rows or lse");
  const bool of_v = !p.wants_backward() || (p.wants_forward() && context.below(2, "additive") == 0);
  if (of_v) {
    p.direction = Direction::forward;
    p.d_lse = p.d_bias = false;
  }
  if (const std::string why = context.kernel().why_unsupported(p); !why.empty()) return CheckResult::not_applicable(why);
  if (is_expanded(p, of_v ? TensorId::v : TensorId::d_o)) return CheckResult::not_applicable("an expanded tensor has no token of its own");
  Inputs even = context.inputs();
  Inputs odd = context.inputs();
  const std::vector<std::int64_t>& lengths = of_v ? p.seq_k : p.seq_q;
  clear_tokens(of_v ? even.v : even.d_o, lengths, true);
  clear_tokens(of_v ? odd.v : odd.d_o, lengths, false);
  if (p.d_lse) std::ranges::fill(odd.d_lse, 0.0);
  CheckResult result;
  Part first, second;
  if (!answer(context, p, even, of_v ? "with the even keys of v" : "with the even queries of do", first, result)) return result;
  if (!answer(context, p, odd, of_v ? "with the odd keys of v" : "with the odd queries of do", second, result)) return result;
  add_up(p, of_v, first, second);
  // The exact answer is that of the case; lse and, for do, o are those of each part.
  ExactWithBounds truth{context.truth().exact, std::move(first.truth.bounds)};
  truth.bounds.deviations = 0;
  expect_truth(p, truth, first.run, of_v ? "added up from the even and odd keys of v" : "added up from the even and odd queries of do", result);
  return result;
}

}  // namespace

const CheckUnit kAdditive = {"additive", "parts of v, or of do, add up to the whole in the results", "K11 K14 K21 K27 M29", 4, run};

}  // namespace attest

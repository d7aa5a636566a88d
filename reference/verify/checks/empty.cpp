// SPDX-License-Identifier: Apache-2.0
// A sequence that sees nothing gives o = 0, lse = -inf and gradients of 0, all of them written, in whichever way it came
// to see nothing; the other sequences keep their answer.
#include "reference/verify/checks/check_units.h"
#include "reference/verify/checks/compare.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace attest {
namespace {

void clear_sequence(const CheckContext& context, const Problem& variant, std::int64_t b, ExactWithBounds& truth) {
  const Problem& p = context.problem();
  const std::int64_t first_q = token_offsets(p.seq_q)[static_cast<std::size_t>(b)];
  const auto zero = [](Values& values, std::int64_t first, std::int64_t count) {
    if (values.empty()) return;
    const std::int64_t row = values.heads * values.width;
    std::fill_n(values.data.begin() + static_cast<std::ptrdiff_t>(first * row), count * row, 0.0);
  };
  const std::int64_t queries = p.seq_q[static_cast<std::size_t>(b)];
  zero(truth.exact.o, first_q, queries);
  zero(truth.bounds.o, first_q, queries);
  zero(truth.exact.dq, first_q, queries);
  zero(truth.bounds.dq, first_q, queries);
  for (std::int64_t at = first_q * p.heads_q; at < (first_q + queries) * p.heads_q; ++at) {
    truth.exact.lse[static_cast<std::size_t>(at)] = -std::numeric_limits<double>::infinity();
    truth.bounds.lse[static_cast<std::size_t>(at)] = 0;
  }
  const std::int64_t first_k = token_offsets(p.seq_k)[static_cast<std::size_t>(b)];
  const std::int64_t keys = p.seq_k[static_cast<std::size_t>(b)];
  for (Values* values : {&truth.exact.dk, &truth.bounds.dk, &truth.exact.dv, &truth.bounds.dv}) {
    if (variant.seq_k[static_cast<std::size_t>(b)] > 0) {
      zero(*values, first_k, keys);
    } else if (!values->empty()) {
      const std::int64_t row = values->heads * values->width;
      const auto begin = values->data.begin() + static_cast<std::ptrdiff_t>(first_k * row);
      values->data.erase(begin, begin + static_cast<std::ptrdiff_t>(keys * row));
      values->tokens -= keys;
    }
  }
}

void take_keys(Values& values, std::int64_t first, std::int64_t count) {
  const std::int64_t row = values.heads * values.width;
  const auto begin = values.data.begin() + static_cast<std::ptrdiff_t>(first * row);
  values.data.erase(begin, begin + static_cast<std::ptrdiff_t>(count * row));
  values.tokens -= count;
}

template <typename T>
Operand<T> operand_for(const Problem& p, std::int64_t b, T shown, T hidden) {
  Operand<T> operand{p.batch(), 1, 1, p.max_k(), std::vector<T>(static_cast<std::size_t>(p.batch() * p.max_k()), shown)};
  std::fill_n(operand.data.begin() + static_cast<std::ptrdiff_t>(b * p.max_k()), p.max_k(), hidden);
  return operand;
}

CheckResult run(const CheckContext& context) {
  if (!plain_conventions(context)) return CheckResult::not_applicable("the kernel has another convention for empty rows");
  Problem p = context.problem();
  const std::int64_t b = context.below(p.batch(), "empty");
  if (p.max_k() == 0) return CheckResult::not_applicable("no keys");
  Inputs inputs = context.inputs();
  p.d_bias = false;
  std::string when;
  const std::int64_t kind = context.below(3, "empty", 1);
  if (kind == 0 && !p.mask) {
    p.mask = ExplicitMask{{p.batch() > 1, false, false, true}, 1};
    inputs.mask = operand_for<std::uint8_t>(p, b, 1, 0);
    when = fmt::format("sequence {} hidden by an explicit mask", b);
  } else if (kind == 1 && !p.bias) {
    p.bias = Bias{{p.batch() > 1, false, false, true}, {}, 0};
    inputs.bias = operand_for<double>(p, b, 0, -std::numeric_limits<double>::infinity());
    when = fmt::format("sequence {} hidden by a bias of -inf", b);
  } else {
    for (const auto& strides : p.strides) {
      if (strides) return CheckResult::not_applicable("strides that do not fit other lengths");
    }
    if (p.layout != Layout::thd && p.page_size == 0 && !p.extent_k) p.extent_k = p.rows_k();
    const std::int64_t first = token_offsets(p.seq_k)[static_cast<std::size_t>(b)];
    const std::int64_t keys = p.seq_k[static_cast<std::size_t>(b)];
    if (keys == p.max_k() && (p.mask || p.bias || p.block)) return CheckResult::not_applicable("masks of the longest sequence");
    take_keys(inputs.k, first, keys);
    take_keys(inputs.v, first, keys);
    p.seq_k[static_cast<std::size_t>(b)] = 0;
    when = fmt::format("sequence {} without keys", b);
  }
  if (const std::string why = context.kernel().why_unsupported(p); !why.empty()) return CheckResult::not_applicable(why);
  ExactWithBounds truth = truth_for(context, context.problem(), inputs);
  clear_sequence(context, p, b, truth);
  CheckResult result;
  expect_truth(p, truth, context.run(p, inputs, truth.exact), when, result);
  return result;
}

}  // namespace

const CheckUnit kEmpty = {"empty", "rows that see nothing give o = 0, lse = -inf and no gradient, however they became empty",
                          "K01 K02 K04 K19 M02 M04 M05 M27", 1, run};

}  // namespace attest

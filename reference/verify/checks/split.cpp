// SPDX-License-Identifier: Apache-2.0
// Keys in two calls, as split-KV, cascades and rings have them: the first keys of every sequence in one call, the others in
// another one, merged here in double by their lse, give o and lse of all keys.
//
// With a, b the lse of the parts and w the weight of the first one, w = 1 / (1 + exp(b - a)):
//   lse = log(exp(a) + exp(b)), whose partial derivatives are weights: its error is at most the larger of the two.
//   o   = w o_a + (1 - w) o_b. An error of at most e in b - a changes w by at most w (1 - w) (exp(e) - 1), and makes no
//         weight larger than exp(e) times what it is: the error of o is at most
//         exp(e) (w error(o_a) + (1 - w) error(o_b)) + w (1 - w) (exp(e) - 1) |o_a - o_b|.
// The errors of the parts are bounded as those of any case, around exact answers of their own.
#include "reference/verify/checks/check_units.h"
#include "reference/verify/checks/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "reference/verify/checks/explicit_mask.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMergeRounding = 16 * 0x1p-53;  // of exp, log and the few products here, relative to what they add up

struct Part {
  Problem problem;
  Inputs inputs;
  ExactWithBounds truth;
  Outputs got;
};

/// Keys `first` to `last` - 1 of each sequence, as far as it has them: [tokens, heads, width].
Values cut_rows(const Values& values, const std::vector<std::int64_t>& lengths, std::int64_t first, std::int64_t last) {
  Values part;
  part.heads = values.heads;
  part.width = values.width;
  const std::int64_t row = values.heads * values.width;
  std::int64_t offset = 0;
  for (const std::int64_t length : lengths) {
    const std::int64_t from = std::min(first, length);
    const std::int64_t to = std::min(last, length);
    const auto begin = values.data.begin() + static_cast<std::ptrdiff_t>((offset + from) * row);
    part.data.insert(part.data.end(), begin, begin + static_cast<std::ptrdiff_t>((to - from) * row));
    part.tokens += to - from;
    offset += length;
  }
  return part;
}

template <typename T>
Operand<T> cut_columns(const Operand<T>& operand, std::int64_t first, std::int64_t last) {
  if (operand.extent_k <= 1) return operand;
  Operand<T> part{operand.extent_b, operand.extent_h, operand.extent_q, last - first, {}};
  for (auto row = operand.data.begin(); row != operand.data.end(); row += static_cast<std::ptrdiff_t>(operand.extent_k)) {
    part.data.insert(part.data.end(), row + static_cast<std::ptrdiff_t>(first), row + static_cast<std::ptrdiff_t>(last));
  }
  return part;
}

Part cut(const Problem& whole, const Inputs& inputs, std::int64_t first, std::int64_t last) {
  Part part;
  part.problem = whole;
  for (std::int64_t& length : part.problem.seq_k) length = std::min(last, length) - std::min(first, length);
  part.inputs = inputs;
  part.inputs.k = cut_rows(inputs.k, whole.seq_k, first, last);
  part.inputs.v = cut_rows(inputs.v, whole.seq_k, first, last);
  part.inputs.bias = cut_columns(inputs.bias, first, last);
  part.inputs.mask = cut_columns(inputs.mask, first, last);
  return part;
}

/// Runs a part and bounds it; false, with the result set, where it gave no answer.
bool answer(const CheckContext& context, Part& part, const std::string& when, CheckResult& result) {
  part.truth = bounds_around(context, part.problem, part.inputs, exact_attention(part.problem, part.inputs));
  KernelRun run = context.run(part.problem, part.inputs, part.truth.exact);
  if (!answered(run, when, result)) return false;
  part.got = std::move(run.outputs);
  return true;
}

/// Share of `a` in the sum of exp(a) and exp(b); of nothing 0.
double weight_of(double a, double b) { return a == -kInfinity ? 0 : 1 / (1 + std::exp(b - a)); }

double merged_lse(double a, double b) {
  const double most = std::max(a, b);
  return most == -kInfinity ? most : most + std::log(std::exp(a - most) + std::exp(b - most));
}

/// x y, and 0 where x is, whatever y.
double times(double x, double y) { return x == 0 ? 0 : x * y; }

void merge(const Part& a, const Part& b, ExactWithBounds& truth, Outputs& got) {
  got = a.got;
  truth.bounds.deviations = 0;
  const auto width = static_cast<std::size_t>(got.o.width);
  for (std::size_t row = 0; row < got.lse.size(); ++row) {
    got.lse[row] = merged_lse(a.got.lse[row], b.got.lse[row]);
    const double got_a = weight_of(a.got.lse[row], b.got.lse[row]), got_b = weight_of(b.got.lse[row], a.got.lse[row]);
    const double of_a = weight_of(a.truth.exact.lse[row], b.truth.exact.lse[row]);
    const double of_b = weight_of(b.truth.exact.lse[row], a.truth.exact.lse[row]);
    const double error_a = a.truth.bounds.lse[row], error_b = b.truth.bounds.lse[row];
    const double scale = std::abs(truth.exact.lse[row]);
    truth.bounds.lse[row] = of_a + of_b == 0 ? 0 : std::max(error_a, error_b) + kMergeRounding * (1 + scale);
    const double growth = std::exp(error_a + error_b);
    for (std::size_t at = row * width; at < (row + 1) * width; ++at) {
      got.o.data[at] = times(got_a, a.got.o.data[at]) + times(got_b, b.got.o.data[at]);
      const double o_a = a.truth.exact.o.data[at], o_b = b.truth.exact.o.data[at];
      const double of_parts = times(of_a, a.truth.bounds.o.data[at]) + times(of_b, b.truth.bounds.o.data[at]);
      const double of_weights = times(of_a * of_b, (growth - 1) * std::abs(o_a - o_b));
      truth.bounds.o.data[at] = times(of_parts, growth) + of_weights +
                                kMergeRounding * (times(of_a, std::abs(o_a)) + times(of_b, std::abs(o_b)));
    }
  }
}

CheckResult run(const CheckContext& context) {
  Problem p = context.problem();
  if (!p.wants_forward()) return CheckResult::not_applicable("backward only");
  if (!plain_conventions(context)) return CheckResult::not_applicable("the kernel has another convention for empty rows or lse");
  if (p.alibi) return CheckResult::not_applicable("the place of a key counts");
  if (p.dropout && p.dropout->p > 0) return CheckResult::not_applicable("the dropout mask counts keys");
  if (p.max_k() < 2) return CheckResult::not_applicable("no keys to part");
  Inputs inputs = context.inputs();
  if (p.causal != Causal::none || p.window || p.block) {
    if (!fits_explicit(p) || p.max_q() == 0) return CheckResult::not_applicable("too large for an explicit mask");
    use_explicit(p, inputs);
  }
  p.direction = Direction::forward;
  p.d_lse = p.d_bias = false;
  p.extent_k.reset();
  for (auto& strides : p.strides) strides.reset();
  inputs.d_o = {};
  inputs.d_lse = {};
  const std::int64_t at = 1 + context.below(p.max_k() - 1, "split");
  Part a = cut(p, inputs, 0, at);
  Part b = cut(p, inputs, at, p.max_k());
  for (const Part* part : {&a, &b}) {
    if (const std::string why = context.kernel().why_unsupported(part->problem); !why.empty()) return CheckResult::not_applicable(why);
  }
  CheckResult result;
  if (!answer(context, a, fmt::format("with the first {} keys alone", at), result)) return result;
  if (!answer(context, b, fmt::format("without the first {} keys", at), result)) return result;
  ExactWithBounds truth{context.truth().exact, context.truth().bounds};
  KernelRun merged;
  merge(a, b, truth, merged.outputs);
  expect_truth(p, truth, merged, fmt::format("merged from the first {} keys and the others", at), result);
  return result;
}

}  // namespace

const CheckUnit kSplit = {"split", "keys in two calls, merged by their lse, give o and lse of one call", "K02 K19 K25 M06 M27", 3, run};

}  // namespace attest

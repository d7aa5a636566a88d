// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/checks/compare.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "reference/oracle/visibility.h"
#include "reference/problem/layout.h"
#include "reference/verify/conventions.h"
#include "reference/verify/judge_outputs.h"

namespace attest {
namespace {

/// NaN equals NaN: its sign and payload are nobody's promise.
bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) || (std::isnan(a) && std::isnan(b));
}

struct Difference {
  std::int64_t count = 0;
  std::int64_t total = 0;
  std::string first;
};

void report(const char* tensor, const Difference& difference, const std::string& when, CheckResult& result) {
  if (difference.count == 0) return;
  result.findings.push_back({"", tensor, fmt::format("{}: {} of {} elements of {} have other bits, first {}", when,
                                                     difference.count, difference.total, tensor, difference.first)});
}

void compare_rows(const char* tensor, const std::vector<std::int64_t>& lengths, std::int64_t heads, std::int64_t width,
                  const std::vector<double>& want, const std::vector<double>& got, const RowFilter& filter,
                  const std::string& when, CheckResult& result) {
  Difference difference;
  std::size_t at = 0;
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    for (std::int64_t i = 0; i < lengths[b]; ++i) {
      for (std::int64_t h = 0; h < heads; ++h, at += static_cast<std::size_t>(width)) {
        if (filter && !filter(static_cast<std::int64_t>(b), h, i)) continue;
        for (std::int64_t d = 0; d < width; ++d) {
          const double w = want[at + static_cast<std::size_t>(d)];
          const double g = got[at + static_cast<std::size_t>(d)];
          difference.total += 1;
          if (same_bits(w, g) || difference.count++ > 0) continue;
          difference.first = fmt::format("[b={} h={} i={} d={}]: {:.9g} then {:.9g}", b, h, i, d, w, g);
        }
      }
    }
  }
  report(tensor, difference, when, result);
}

/// Takes rows that are not compared from the exact answer, so that they count as right.
void hide_rows(const std::vector<std::int64_t>& lengths, const RowFilter& filter, std::int64_t heads, std::int64_t width,
               const std::vector<double>& exact, std::vector<double>& got) {
  if (!filter) return;
  std::size_t at = 0;
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    for (std::int64_t i = 0; i < lengths[b]; ++i) {
      for (std::int64_t h = 0; h < heads; ++h, at += static_cast<std::size_t>(width)) {
        if (filter(static_cast<std::int64_t>(b), h, i)) continue;
        std::copy_n(exact.begin() + static_cast<std::ptrdiff_t>(at), width, got.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
  }
}

void expect_in_bounds(const Problem& problem, const ExactWithBounds& truth, const Outputs& got, const std::string& when,
                      CheckResult& result) {
  for (const TensorVerdict& tensor : judge_outputs(problem, truth, got)) {
    if (tensor.wrong == 0) continue;
    result.findings.push_back(
        {"", tensor.tensor,
         fmt::format("{}: {} of {} elements of {} off ({}), worst at {}: want {:.9g} got {:.9g} bound {:.3g} score {:.3g}",
                     when, tensor.wrong, tensor.total, tensor.tensor, tensor.cluster, print_place(tensor.worst),
                     tensor.want, tensor.got, tensor.bound, tensor.score),
         true});
  }
}

}  // namespace

bool answered(const KernelRun& run, const std::string& when, CheckResult& result) {
  for (Finding finding : run.findings) {
    finding.message = when + ": " + finding.message;
    result.findings.push_back(std::move(finding));
  }
  if (!run.error.empty()) {
    result.findings.push_back({"", "", when + ": " + run.error});
    return false;
  }
  if (!run.refusal.empty()) {
    result.outcome = Outcome::not_applicable;
    result.reason = run.refusal;
    return false;
  }
  return true;
}

void expect_repeats(const CheckContext& context, const KernelRun& run, const std::string& when, CheckResult& result,
                    const Compared& compared) {
  if (!answered(run, when, result)) return;
  const Problem& p = context.problem();
  const Outputs& want = context.base();
  const Outputs& got = run.outputs;
  const bool forward = p.wants_forward() && compared.forward;
  const bool backward = p.wants_backward() && compared.backward;
  // A backward reads o and lse, so its bits need those of the forward before it.
  const bool bits_forward = context.conventions().bitwise_forward != 0;
  const bool bits_backward = context.conventions().bitwise_backward != 0 && (bits_forward || !p.wants_forward());
  if (forward && bits_forward) {
    compare_rows("o", p.seq_q, p.heads_q, p.width_v(), want.o.data, got.o.data, compared.queries, when, result);
    compare_rows("lse", p.seq_q, p.heads_q, 1, want.lse, got.lse, compared.queries, when, result);
  }
  if (backward && bits_backward) {
    compare_rows("dq", p.seq_q, p.heads_q, p.dim, want.dq.data, got.dq.data, compared.queries, when, result);
    compare_rows("dk", p.seq_k, p.heads_kv, p.dim, want.dk.data, got.dk.data, compared.keys, when, result);
    compare_rows("dv", p.seq_k, p.heads_kv, p.width_v(), want.dv.data, got.dv.data, compared.keys, when, result);
    if (p.d_bias && !compared.queries) {
      const auto rows = static_cast<std::int64_t>(want.d_bias.data.size());
      compare_rows("dbias", {rows}, 1, 1, want.d_bias.data, got.d_bias.data, {}, when, result);
    }
  }
  if ((!forward || bits_forward) && (!backward || bits_backward)) return;
  Outputs rest = got;
  const Exact& exact = context.truth().exact;
  Problem judged = p;
  judged.direction = !forward || bits_forward ? Direction::backward : !backward || bits_backward ? Direction::forward : p.direction;
  judged.d_bias = p.d_bias && !compared.queries;
  if (p.wants_forward()) {
    hide_rows(p.seq_q, compared.queries, p.heads_q, p.width_v(), exact.o.data, rest.o.data);
    hide_rows(p.seq_q, compared.queries, p.heads_q, 1, exact.lse, rest.lse);
  }
  if (p.wants_backward()) {
    hide_rows(p.seq_q, compared.queries, p.heads_q, p.dim, exact.dq.data, rest.dq.data);
    hide_rows(p.seq_k, compared.keys, p.heads_kv, p.dim, exact.dk.data, rest.dk.data);
    hide_rows(p.seq_k, compared.keys, p.heads_kv, p.width_v(), exact.dv.data, rest.dv.data);
  }
  expect_in_bounds(judged, context.truth(), rest, when, result);
}

void expect_truth(const Problem& problem, const ExactWithBounds& truth, const KernelRun& run, const std::string& when,
                  CheckResult& result) {
  if (answered(run, when, result)) expect_in_bounds(problem, truth, run.outputs, when, result);
}

bool plain_conventions(const CheckContext& context) {
  const attest_conventions& c = context.conventions();
  return c.empty_rows == ATTEST_EMPTY_ZERO && c.empty_lse == ATTEST_EMPTY_LSE_NEG_INF && c.lse_unit == ATTEST_LSE_NATURAL;
}

ExactWithBounds bounds_around(const CheckContext& context, const Problem& variant, const Inputs& inputs, Exact exact) {
  return bounds_around(context, variant, inputs, std::move(exact), bound_mode(variant));
}

ExactWithBounds bounds_around(const CheckContext& context, const Problem& variant, const Inputs& inputs, Exact exact, BoundMode mode) {
  const NumericsProfile profile = make_profile(context.kernel().numerics(variant), variant);
  ExactWithBounds truth;
  truth.bounds = error_bounds(variant, inputs, exact, profile, mode);
  truth.exact = std::move(exact);
  apply_conventions(context.conventions(), variant, inputs, truth);
  return truth;
}

bool same_numerics(const CheckContext& context, const Problem& variant) {
  const attest_numerics own = context.kernel().numerics(context.problem());
  const attest_numerics other = context.kernel().numerics(variant);
  return std::memcmp(&own, &other, sizeof(own)) == 0;
}

ExactWithBounds truth_for(const CheckContext& context, const Problem& variant, const Inputs& inputs) {
  if (same_numerics(context, variant)) return context.truth();
  if (plain_conventions(context)) return bounds_around(context, variant, inputs, context.truth().exact);
  return bounds_around(context, variant, inputs, exact_attention(variant, inputs));
}

bool is_expanded(const Problem& problem, TensorId id) {
  const Extents extents = extents_of(problem, id);
  const Strides strides = strides_of(problem, id);
  return (extents.batch > 1 && strides.batch == 0) || (extents.rows > 1 && strides.seq == 0) ||
         (extents.heads > 1 && strides.head == 0);
}

std::vector<char> unseen_keys(const Problem& p, const Inputs& inputs) {
  std::vector<char> unseen(static_cast<std::size_t>(p.total_k() * p.heads_kv), 1);  // [tokens_k, Hkv]
  const std::vector<std::int64_t> offsets = token_offsets(p.seq_k);
  const bool by_head = p.mask || p.block;
  for (std::int64_t b = 0; b < p.batch(); ++b) {
    for (std::int64_t i = 0; i < p.seq_q[b]; ++i) {
      const KeyRange range = key_range(p, b, i);
      for (std::int64_t j = range.first; j < range.last; ++j) {
        char* key = &unseen[static_cast<std::size_t>((offsets[b] + j) * p.heads_kv)];
        for (std::int64_t kv = 0; kv < p.heads_kv; ++kv) {
          if (!by_head) key[kv] = 0;
          for (std::int64_t h = kv * p.group(); key[kv] != 0 && h < (kv + 1) * p.group(); ++h) {
            if (visible(p, inputs, b, h, i, j)) key[kv] = 0;
          }
        }
      }
    }
  }
  return unseen;
}

}  // namespace attest

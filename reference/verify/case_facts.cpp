// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/case_facts.h"

#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "reference/oracle/visibility.h"
#include "reference/problem/case_text.h"
#include "reference/problem/inputs.h"
#include "reference/problem/invalid_request.h"
#include "reference/problem/layout.h"

namespace attest {
namespace {

constexpr std::int64_t kMostPairs = std::int64_t{1} << 32;

std::int64_t storage_bytes(const Problem& p, TensorId id) {
  const Dtype type = is_output(id) ? p.output_dtype() : p.dtype;
  return storage_elements(p, id) * format_of(type).bytes;
}

std::string amount(double value, const char* unit) {
  for (const char* prefix : {"", "k", "M", "G", "T"}) {
    if (value < 1000) return fmt::format("{:.4g} {}{}", value, prefix, unit);
    value /= 1000;
  }
  return fmt::format("{:.4g} P{}", value, unit);
}

void count_head(const Problem& p, const Inputs& inputs, std::int64_t b, std::int64_t h, std::vector<char>& seen,
                CaseFacts& facts) {
  const double minus_infinity = -std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < p.seq_q[b]; ++i) {
    const KeyRange range = key_range(p, b, i);
    std::int64_t in_row = 0;
    for (std::int64_t j = range.first; j < range.last; ++j) {
      if (!visible(p, inputs, b, h, i, j)) continue;
      if (p.bias && inputs.bias.at(b, h, i, j) == minus_infinity) continue;
      seen[static_cast<std::size_t>(j)] = 1;
      ++in_row;
    }
    facts.visible += in_row;
    facts.empty_rows += in_row == 0;
  }
}

}  // namespace

CaseFacts case_facts(const Problem& p) {
  CaseFacts facts;
  for (std::int64_t b = 0; b < p.batch(); ++b) {
    const double pairs = static_cast<double>(p.seq_q[b]) * static_cast<double>(p.seq_k[b]) * static_cast<double>(p.heads_q);
    if (pairs + static_cast<double>(facts.pairs) > static_cast<double>(kMostPairs)) {
      throw InvalidRequest("case", "more than 2^32 query-key pairs", "at most 2^32 to count what is visible");
    }
    facts.pairs += static_cast<std::int64_t>(pairs);
    facts.rows += p.seq_q[b] * p.heads_q;
  }
  // The masks come with the inputs; the tensors themselves are not needed.
  Problem masks_only = p;
  masks_only.dim = 1;
  masks_only.dim_v.reset();
  masks_only.strides = {};
  if (masks_only.fill.family == "file") masks_only.fill = Fill{};
  const Inputs inputs = make_inputs(masks_only);
  for (std::int64_t b = 0; b < p.batch(); ++b) {
    for (std::int64_t kv = 0; kv < p.heads_kv; ++kv) {
      std::vector<char> seen(static_cast<std::size_t>(p.seq_k[b]), 0);  // [Sk]
      for (std::int64_t h = kv * p.group(); h < (kv + 1) * p.group(); ++h) count_head(p, inputs, b, h, seen, facts);
      for (const char key : seen) facts.unseen_keys += key == 0;
    }
  }
  const double pairs = static_cast<double>(facts.visible);
  facts.forward_flops = pairs * 2 * static_cast<double>(p.dim + p.width_v());
  facts.backward_flops = pairs * 2 * static_cast<double>(3 * p.dim + 2 * p.width_v());
  for (const TensorId id : {TensorId::q, TensorId::k, TensorId::v}) facts.input_bytes += storage_bytes(p, id);
  if (p.wants_forward()) facts.output_bytes += storage_bytes(p, TensorId::o);
  if (p.wants_backward()) {
    facts.input_bytes += storage_bytes(p, TensorId::d_o);
    for (const TensorId id : {TensorId::dq, TensorId::dk, TensorId::dv}) facts.output_bytes += storage_bytes(p, id);
  }
  return facts;
}

std::string explain_case(const Problem& p) {
  const CaseFacts facts = case_facts(p);
  std::string text = fmt::format("case      {}\n", print_case(p).empty() ? "(all defaults)" : print_case(p));
  text += fmt::format("shapes    {} sequence{}, {} query and {} key tokens; q [{} tokens, {}, {}], k [{} tokens, {}, {}], v width {}\n",
                      p.batch(), p.batch() == 1 ? "" : "s", p.total_q(), p.total_k(), p.total_q(), p.heads_q, p.dim,
                      p.total_k(), p.heads_kv, p.dim, p.width_v());
  text += fmt::format("types     {} in, {} out, lse {}; scale {:.9g}\n", name_of(p.dtype), name_of(p.output_dtype()),
                      name_of(p.lse_dtype()), p.effective_scale());
  text += fmt::format("memory    {} in, {} out\n", amount(static_cast<double>(facts.input_bytes), "B"),
                      amount(static_cast<double>(facts.output_bytes), "B"));
  text += fmt::format("visible   {} of {} query-key pairs ({:.1f}%)\n", facts.visible, facts.pairs,
                      facts.pairs == 0 ? 0.0 : 100.0 * static_cast<double>(facts.visible) / static_cast<double>(facts.pairs));
  text += fmt::format("work      {} forward, {} backward (visible pairs only)\n", amount(facts.forward_flops, "FLOP"),
                      amount(facts.backward_flops, "FLOP"));
  text += fmt::format("empty     {} of {} query rows see no key", facts.empty_rows, facts.rows);
  text += facts.empty_rows == 0 ? "\n" : ": o = 0, lse = -inf, no gradient from them\n";
  if (p.wants_backward()) {
    text += fmt::format("unseen    {} of {} key rows are seen by no query", facts.unseen_keys, p.total_k() * p.heads_kv);
    text += facts.unseen_keys == 0 ? "\n" : ": dk = dv = 0, written\n";
  }
  text += "returns  ";
  if (p.wants_forward()) text += " o, lse";
  if (p.wants_backward()) text += fmt::format(" {}dq, dk, dv{}", p.wants_forward() ? "and then " : "", p.d_bias ? ", dbias" : "");
  text += "; rows past the lengths, padding and gaps stay untouched\n";
  return text;
}

}  // namespace attest

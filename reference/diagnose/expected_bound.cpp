// SPDX-License-Identifier: Apache-2.0
// What a right kernel of the assumed arithmetic may be off by: the bounds of docs/numerics.md, as `attest verify` has them
// for real data, on rows spread over the first and the last head.
#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "reference/diagnose/stages.h"
#include "reference/oracle/bound.h"
#include "reference/oracle/visibility.h"
#include "reference/verify/verdict.h"

namespace attest::diagnose {
namespace {

constexpr double kWork = 1e8;  // multiply-adds
constexpr std::int64_t kFewestRows = 8;

/// Some query rows of one key/value head as a call of their own.
struct Part {
  std::int64_t b = 0, head_kv = 0;
  std::vector<std::int64_t> rows;
  Problem problem;
  Inputs inputs;
};

/// Rows keep their places in what is made explicit: mask and bias (ALiBi is in it) of every row and key.
void add_operands_of(const Evidence& e, Part& part) {
  const Problem& p = e.problem;
  const auto count = static_cast<std::int64_t>(part.rows.size());
  const std::int64_t group = p.group(), keys = p.seq_k[part.b];
  const bool masked = p.causal != Causal::none || p.window || p.mask || p.block;
  const auto each = [&](auto&& fn) {
    for (std::int64_t h = 0; h < group; ++h) {
      for (const std::int64_t i : part.rows) {
        for (std::int64_t j = 0; j < keys; ++j) fn(part.head_kv * group + h, i, j);
      }
    }
  };
  if (masked) {
    part.problem.mask = ExplicitMask{{false, true, true, true}, 1};
    part.inputs.mask = {1, group, count, keys, {}};
    each([&](std::int64_t h, std::int64_t i, std::int64_t j) { part.inputs.mask.data.push_back(visible(p, e.operands, part.b, h, i, j)); });
  }
  if (p.bias || p.alibi) {
    part.problem.bias = Bias{{false, true, true, true}, p.bias ? p.bias->dtype : std::nullopt, 0};
    part.inputs.bias = {1, group, count, keys, {}};
    each([&](std::int64_t h, std::int64_t i, std::int64_t j) {
      const double distance = static_cast<double>(std::abs(i + p.seq_k[part.b] - p.seq_q[part.b] - j));
      part.inputs.bias.data.push_back((p.bias ? e.operands.bias.at(part.b, h, i, j) : 0) - (p.alibi ? e.operands.alibi_slopes[static_cast<std::size_t>(h)] * distance : 0));
    });
  }
}

Part part_of(const Evidence& e, std::int64_t b, std::int64_t head_kv, std::int64_t count) {
  const Problem& p = e.problem;
  Part part{b, head_kv, {}, p, {}};
  for (std::int64_t n = 0; n < count; ++n) part.rows.push_back(count == 1 ? p.seq_q[b] - 1 : n * (p.seq_q[b] - 1) / (count - 1));
  Problem& own = part.problem;
  const std::int64_t group = p.group(), keys = p.seq_k[b];
  own.layout = Layout::bshd;
  own.pad = PadSide::right;
  own.seq_q = {count};
  own.seq_k = {keys};
  own.extent_q.reset();
  own.extent_k.reset();
  own.heads_q = group;
  own.heads_kv = 1;
  own.alibi = own.d_bias = false;
  own.bias.reset();
  own.causal = Causal::none;
  own.window.reset();
  own.mask.reset();
  own.block.reset();
  const auto query = [&](TensorId id, Values& to) {
    to = Values(count, group, e.of(id).extents().width);
    for (std::int64_t n = 0; n < count; ++n) {
      for (std::int64_t h = 0; h < group; ++h) e.of(id).read(b, row_of_token(p, id, b, part.rows[static_cast<std::size_t>(n)]), head_kv * group + h, to.row(n, h));
    }
  };
  const auto key = [&](TensorId id, Values& to) {
    to = Values(keys, 1, e.of(id).extents().width);
    for (std::int64_t j = 0; j < keys; ++j) e.of(id).read(b, row_of_token(p, id, b, j), head_kv, to.row(j, 0));
  };
  query(TensorId::q, part.inputs.q);
  key(TensorId::k, part.inputs.k);
  key(TensorId::v, part.inputs.v);
  if (own.wants_backward()) query(TensorId::d_o, part.inputs.d_o);
  for (std::int64_t n = 0; own.d_lse && n < count; ++n) {
    for (std::int64_t h = 0; h < group; ++h) {
      double value = 0;
      e.d_lse.read(b, row_of_token(p, TensorId::o, b, part.rows[static_cast<std::size_t>(n)]), head_kv * group + h, {&value, 1});
      part.inputs.d_lse.push_back(value);
    }
  }
  add_operands_of(e, part);
  return part;
}

/// The largest bound of one tensor.
struct Largest {
  double bound = -1, value = 0;
  Place place = {};

  void take(double size, double exact, const Place& at) {
    if (!std::isfinite(size) || size <= bound) return;
    bound = size;
    value = exact;
    place = at;
  }
};

void take_query_side(const Part& part, const Problem& p, const Values& exact, const Values& bound, Largest& largest) {
  for (std::size_t n = 0; n < part.rows.size(); ++n) {
    for (std::int64_t h = 0; h < p.group(); ++h) {
      const auto sizes = bound.row(static_cast<std::int64_t>(n), h), values = exact.row(static_cast<std::int64_t>(n), h);
      for (std::size_t c = 0; c < sizes.size(); ++c) largest.take(sizes[c], values[c], {part.b, part.head_kv * p.group() + h, part.rows[n], static_cast<std::int64_t>(c)});
    }
  }
}

void take_key_side(const Part& part, const Values& exact, const Values& bound, Largest& largest) {
  for (std::int64_t j = 0; j < part.problem.seq_k[0]; ++j) {
    const auto sizes = bound.row(j, 0), values = exact.row(j, 0);
    for (std::size_t c = 0; c < sizes.size(); ++c) largest.take(sizes[c], values[c], {part.b, part.head_kv, j, static_cast<std::int64_t>(c)});
  }
}

}  // namespace

void check_expected_bound(const Evidence& e, Lines& lines) {
  const Problem& p = e.problem;
  std::set<std::pair<std::int64_t, std::int64_t>> heads = {{0, 0}, {p.batch() - 1, p.heads_kv - 1}};
  Largest o, lse, dq, dk, dv;
  std::int64_t looked = 0;
  bool whole = true;
  for (const auto& [b, head_kv] : heads) {
    if (p.seq_q[b] == 0 || p.seq_k[b] == 0) continue;
    const double row = static_cast<double>(p.group() * p.seq_k[b] * (p.dim + p.width_v()));
    const std::int64_t count = std::min(p.seq_q[b], std::max(kFewestRows, static_cast<std::int64_t>(kWork / static_cast<double>(heads.size()) / row)));
    const Part part = part_of(e, b, head_kv, count);
    const ExactWithBounds truth = exact_attention_with_bounds(part.problem, part.inputs, e.numerics, BoundMode::captured);
    looked += count * p.group();
    take_query_side(part, p, truth.exact.o, truth.bounds.o, o);
    for (std::size_t n = 0; n < truth.bounds.lse.size(); ++n) {
      const std::int64_t h = head_kv * p.group() + static_cast<std::int64_t>(n) % p.group();
      lse.take(truth.bounds.lse[n], truth.exact.lse[n], {b, h, part.rows[n / static_cast<std::size_t>(p.group())], -1});
    }
    if (!p.wants_backward()) continue;
    take_query_side(part, p, truth.exact.dq, truth.bounds.dq, dq);
    whole &= count == p.seq_q[b];
    if (count < p.seq_q[b]) continue;
    take_key_side(part, truth.exact.dk, truth.bounds.dk, dk);
    take_key_side(part, truth.exact.dv, truth.bounds.dv, dv);
  }
  std::vector<std::string> parts;
  for (const auto& [name, one] : {std::pair("o", &o), std::pair("lse", &lse), std::pair("dq", &dq), std::pair("dk", &dk), std::pair("dv", &dv)}) {
    if (one->bound >= 0) parts.push_back(fmt::format("{} {:.3g} (value {:.3g}) at {}", name, one->bound, one->value, print_place(one->place)));
  }
  if (parts.empty()) return;
  const std::string of = looked < p.total_q() * p.heads_q ? fmt::format("{} of {} rows{}", looked, p.total_q() * p.heads_q, whole ? "" : "; dk and dv need whole heads") : "all rows";
  lines.push_back({"bound", Level::ok, fmt::format("a right kernel of the assumed arithmetic may be off by up to: {} ({}{})", fmt::join(parts, ", "), of, p.dropout ? "; dropout drawn anew" : ""), ""});
}

}  // namespace attest::diagnose

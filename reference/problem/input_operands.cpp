// SPDX-License-Identifier: Apache-2.0
// Gradient of LSE, bias, masks and slopes. Each entry comes from its own indices and the fill seed, so a mask over
// [B, Hq, Sq, Sk] does not change with the type, the layout or the family of the problem; exact-census has masks of its own.
#include "reference/problem/input_operands.h"

#include <cmath>
#include <limits>

#include "reference/problem/exact_inputs.h"
#include "reference/problem/input_families.h"

namespace attest {
namespace {

RandomStream stream_of(const Problem& problem, StreamTag tag) {
  return {problem.fill.seed, static_cast<std::uint64_t>(tag)};
}

RandomStream row_stream(const RandomStream& base, std::int64_t b, std::int64_t h, std::int64_t i) {
  return base.child(static_cast<std::uint64_t>(b))
      .child(static_cast<std::uint64_t>(h))
      .child(static_cast<std::uint64_t>(i));
}

template <typename T>
Operand<T> empty_operand(const Problem& problem, const Broadcast& shape) {
  Operand<T> operand;
  operand.extent_b = shape.batch ? problem.batch() : 1;
  operand.extent_h = shape.head ? problem.heads_q : 1;
  operand.extent_q = shape.query ? problem.max_q() : 1;
  operand.extent_k = shape.key ? problem.max_k() : 1;
  operand.data.resize(
      static_cast<std::size_t>(operand.extent_b * operand.extent_h * operand.extent_q * operand.extent_k));
  return operand;
}

/// fill(b, h, i, row) for each row of keys of the operand.
template <typename T, typename Fill>
void fill_rows(Operand<T>& operand, Fill fill) {
  const auto width = static_cast<std::size_t>(operand.extent_k);
  std::size_t first = 0;
  for (std::int64_t b = 0; b < operand.extent_b; ++b) {
    for (std::int64_t h = 0; h < operand.extent_h; ++h) {
      for (std::int64_t i = 0; i < operand.extent_q; ++i, first += width) {
        fill(b, h, i, std::span<T>(operand.data).subspan(first, width));
      }
    }
  }
}

std::vector<double> make_d_lse(const Problem& problem) {
  std::vector<double> d_lse;
  d_lse.reserve(static_cast<std::size_t>(problem.total_q() * problem.heads_q));
  const RandomStream base = stream_of(problem, StreamTag::d_lse);
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    for (std::int64_t i = 0; i < problem.seq_q[static_cast<std::size_t>(b)]; ++i) {
      const RandomStream token = base.child(static_cast<std::uint64_t>(b)).child(static_cast<std::uint64_t>(i));
      for (std::int64_t h = 0; h < problem.heads_q; ++h) {
        d_lse.push_back(round_to(problem.lse_dtype(), token.normal(static_cast<std::uint64_t>(h))));
      }
    }
  }
  return d_lse;
}

Operand<double> make_bias(const Problem& problem) {
  Operand<double> bias = empty_operand<double>(problem, problem.bias->shape);
  const RandomStream base = stream_of(problem, StreamTag::bias);
  const RandomStream hiding = stream_of(problem, StreamTag::bias_hide);
  fill_rows(bias, [&](std::int64_t b, std::int64_t h, std::int64_t i, std::span<double> row) {
    if (problem.fill.family == "exact-census") {
      std::vector<std::uint8_t> shown(row.size());
      census_row(problem, row_stream(hiding, b, h, i), shown);
      for (std::size_t j = 0; j < row.size(); ++j) row[j] = shown[j] != 0 ? 0 : -std::numeric_limits<double>::infinity();
      return;
    }
    row_stream(base, b, h, i).fill_normal(row);
    round_all(problem.bias_dtype(), row, Overflow::saturate);
    if (problem.bias->hide == 0) return;
    const RandomStream hidden = row_stream(hiding, b, h, i);
    for (std::size_t j = 0; j < row.size(); ++j) {
      if (hidden.unit(j) < problem.bias->hide) row[j] = -std::numeric_limits<double>::infinity();
    }
  });
  return bias;
}

Operand<std::uint8_t> make_mask(const Problem& problem) {
  const ExplicitMask& spec = *problem.mask;
  Operand<std::uint8_t> mask = empty_operand<std::uint8_t>(problem, spec.shape);
  const RandomStream base = stream_of(problem, StreamTag::mask);
  const RandomStream hidden_rows = stream_of(problem, StreamTag::mask_rows);
  const bool hides_rows = spec.density < 1 && spec.shape.query;
  fill_rows(mask, [&](std::int64_t b, std::int64_t h, std::int64_t i, std::span<std::uint8_t> row) {
    if (problem.fill.family == "exact-census") return census_row(problem, row_stream(base, b, h, i), row);
    const bool hidden = hides_rows && row_stream(hidden_rows, b, h, i).below(0, 16) == 0;
    const RandomStream random = row_stream(base, b, h, i);
    for (std::size_t j = 0; j < row.size(); ++j) row[j] = !hidden && random.unit(j) < spec.density;
  });
  return mask;
}

Operand<std::uint8_t> make_block_mask(const Problem& problem) {
  const BlockMask& spec = *problem.block;
  Operand<std::uint8_t> mask;
  mask.extent_b = problem.batch();
  mask.extent_h = problem.heads_q;
  mask.extent_q = (problem.max_q() + spec.rows - 1) / spec.rows;
  mask.extent_k = (problem.max_k() + spec.cols - 1) / spec.cols;
  mask.data.resize(static_cast<std::size_t>(mask.extent_b * mask.extent_h * mask.extent_q * mask.extent_k));
  const RandomStream base = stream_of(problem, StreamTag::block_mask);
  fill_rows(mask, [&](std::int64_t b, std::int64_t h, std::int64_t tile_i, std::span<std::uint8_t> row) {
    const RandomStream random = row_stream(base, b, h, tile_i);
    for (std::int64_t tile_j = 0; tile_j < mask.extent_k; ++tile_j) {
      const bool local = spec.local >= 0 && std::abs(tile_j - tile_i) <= spec.local;
      const bool global = tile_i < spec.global || tile_j < spec.global;
      const auto j = static_cast<std::size_t>(tile_j);
      row[j] = local || global || random.unit(j) < spec.random;
    }
  });
  return mask;
}

}  // namespace

double alibi_slope(std::int64_t head, std::int64_t heads_q) {
  // 2^-x with x = whole + part / Hq; 2^-(part / Hq) = e^-t by its Taylor series, t < ln 2, so that no libm enters.
  const std::int64_t eighths = 8 * (head + 1);
  const std::int64_t whole = eighths / heads_q;
  const double t = static_cast<double>(eighths % heads_q) / static_cast<double>(heads_q) * 0.69314718055994530942;
  double sum = 1;
  for (int n = 20; n >= 1; --n) sum = 1 - sum * t / n;
  return round_to(Dtype::f32, std::ldexp(sum, -static_cast<int>(whole)));
}

void add_operands(const Problem& problem, Inputs& inputs) {
  if (problem.d_lse && problem.wants_backward() && inputs.d_lse.empty()) inputs.d_lse = make_d_lse(problem);
  if (problem.bias && inputs.bias.empty()) inputs.bias = make_bias(problem);
  if (problem.mask) inputs.mask = make_mask(problem);
  if (problem.block) inputs.block_mask = make_block_mask(problem);
  if (problem.alibi) {
    for (std::int64_t h = 0; h < problem.heads_q; ++h) inputs.alibi_slopes.push_back(alibi_slope(h, problem.heads_q));
  }
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// Inputs for tests of single units: N(0, 1), rounded to the storage types, independent of the input families.
#pragma once

#include <cmath>
#include <limits>
#include <random>

#include "reference/problem/inputs.h"
#include "reference/problem/layout.h"

namespace attest {

inline Inputs normal_inputs(const Problem& problem, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const auto fill = [&](TensorId id) {
    const Extents extents = extents_of(problem, id);
    const Strides strides = strides_of(problem, id);
    const auto& lengths = is_query_side(id) ? problem.seq_q : problem.seq_k;
    Values values(is_query_side(id) ? problem.total_q() : problem.total_k(), extents.heads, extents.width);
    std::int64_t token = 0;
    for (std::size_t b = 0; b < lengths.size(); ++b)
      for (std::int64_t i = 0; i < lengths[b]; ++i, ++token)
        for (std::int64_t h = 0; h < extents.heads; ++h)
          for (std::int64_t c = 0; c < extents.width; ++c) {
            // Equal along heads or sequences (of equal lengths) with stride 0.
            const bool copies_head = strides.head == 0 && h > 0;
            const bool copies_batch = strides.batch == 0 && b > 0 && problem.layout != Layout::thd;
            values.at(token, h, c) = copies_head    ? values.at(token, 0, c)
                                     : copies_batch ? values.at(i, h, c)
                                                    : round_to(problem.dtype, normal(random));
          }
    return values;
  };
  const auto operand = [&]<typename T>(Operand<T>& to, const Broadcast& shape, std::int64_t queries, std::int64_t keys,
                                       auto value) {
    to.extent_b = shape.batch ? problem.batch() : 1;
    to.extent_h = shape.head ? problem.heads_q : 1;
    to.extent_q = shape.query ? queries : 1;
    to.extent_k = shape.key ? keys : 1;
    to.data.resize(static_cast<std::size_t>(to.extent_b * to.extent_h * to.extent_q * to.extent_k));
    for (T& x : to.data) x = value();
  };
  std::uniform_real_distribution<double> uniform;
  Inputs inputs;
  inputs.q = fill(TensorId::q);
  inputs.k = fill(TensorId::k);
  inputs.v = fill(TensorId::v);
  inputs.d_o = fill(TensorId::d_o);
  if (problem.d_lse)
    for (std::int64_t at = 0; at < problem.total_q() * problem.heads_q; ++at)
      inputs.d_lse.push_back(round_to(problem.lse_dtype(), normal(random)));
  if (problem.bias)
    operand(inputs.bias, problem.bias->shape, problem.max_q(), problem.max_k(), [&] {
      return uniform(random) < problem.bias->hide ? -std::numeric_limits<double>::infinity()
                                                  : round_to(problem.bias_dtype(), normal(random));
    });
  if (problem.mask)
    operand(inputs.mask, problem.mask->shape, problem.max_q(), problem.max_k(),
            [&] { return static_cast<std::uint8_t>(uniform(random) < problem.mask->density); });
  if (problem.block)
    operand(inputs.block_mask, {true, true, true, true}, (problem.max_q() + problem.block->rows - 1) / problem.block->rows,
            (problem.max_k() + problem.block->cols - 1) / problem.block->cols,
            [&] { return static_cast<std::uint8_t>(uniform(random) < 0.5); });
  for (std::int64_t h = 0; problem.alibi && h < problem.heads_q; ++h)
    inputs.alibi_slopes.push_back(
        static_cast<float>(std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(problem.heads_q))));
  return inputs;
}

}  // namespace attest

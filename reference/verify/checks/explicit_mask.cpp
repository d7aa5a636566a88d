// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/checks/explicit_mask.h"

#include "reference/oracle/visibility.h"

namespace attest {

bool fits_explicit(const Problem& p) {
  constexpr double kMostEntries = 2e6;
  return static_cast<double>(p.batch() * p.heads_q) * static_cast<double>(p.max_q() * p.max_k()) <= kMostEntries;
}

Operand<std::uint8_t> visible_pairs(const Problem& p, const Inputs& inputs) {
  Operand<std::uint8_t> mask;
  mask.extent_b = p.batch();
  mask.extent_h = p.mask || p.block ? p.heads_q : 1;
  mask.extent_q = p.max_q();
  mask.extent_k = p.max_k();
  mask.data.assign(static_cast<std::size_t>(mask.extent_b * mask.extent_h * mask.extent_q * mask.extent_k), 0);
  for (std::int64_t b = 0; b < p.batch(); ++b) {
    for (std::int64_t h = 0; h < mask.extent_h; ++h) {
      for (std::int64_t i = 0; i < p.seq_q[static_cast<std::size_t>(b)]; ++i) {
        const KeyRange range = key_range(p, b, i);
        for (std::int64_t j = range.first; j < range.last; ++j) {
          mask.data[mask.index(b, h, i, j)] = visible(p, inputs, b, h, i, j) ? 1 : 0;
        }
      }
    }
  }
  return mask;
}

void use_explicit(Problem& p, Inputs& inputs) {
  inputs.mask = visible_pairs(p, inputs);
  inputs.block_mask = {};
  p.mask = ExplicitMask{{inputs.mask.extent_b > 1, inputs.mask.extent_h > 1, true, true}, 1};
  p.block.reset();
  p.window.reset();
  p.causal = Causal::none;
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
#include "reference/problem/values.h"

namespace attest {

std::vector<std::int64_t> token_offsets(std::span<const std::int64_t> lengths) {
  std::vector<std::int64_t> offsets(lengths.size() + 1, 0);
  for (std::size_t b = 0; b < lengths.size(); ++b) offsets[b + 1] = offsets[b] + lengths[b];
  return offsets;
}

}  // namespace attest

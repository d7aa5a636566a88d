// SPDX-License-Identifier: Apache-2.0
// One case of a pack: the problem, its inputs, the exact answer, and the bounds of a profile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/oracle/bound.h"
#include "reference/problem/inputs.h"
#include "reference/problem/problem.h"

namespace attest::golden {

struct GoldenCase {
  Problem problem;
  std::string profile;                     // whose arithmetic the bounds allow
  std::vector<std::string> flags;          // what it is aimed at
  std::string set;                         // input elements set after their family: "k[5,0,2]=nan v[0,1,3]=inf"
  std::vector<std::string> exact_tensors;  // outputs that must be equal to the last bit: their bound is 0
  Inputs inputs;
  Exact exact;                    // each value rounded once from the true one
  Bounds bounds;                  // float32 values
  Operand<std::uint8_t> visible;  // [B, Hq|1, max_q, max_k]; 1 where masks, window and lengths show the pair
  Operand<std::uint8_t> keep;     // [B, Hq, max_q, max_k]; 1 where dropout keeps; empty without dropout
};

}  // namespace attest::golden

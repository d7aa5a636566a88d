// SPDX-License-Identifier: Apache-2.0
// What a pack is made from: a corpus of cases (one case text a line) whose comments also say what each is aimed at.
//
//   # flags: EmptyRow CausalAlignment     for all cases from here to the next such line
//   # exact: o dv                         the same; "# exact:" alone ends it
//   # set: k[5,0,2]=nan v[1,0,0]=inf      for the next case alone: input elements, by token, head and column
//   q=5 k=2 dim=8 causal=bottom-right
//
// Other comments are comments. `attest verify --corpus` takes the same file.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "reference/problem/inputs.h"
#include "reference/problem/problem.h"

namespace attest::golden {

struct GoldenRequest {
  Problem problem;
  std::vector<std::string> flags;
  std::vector<std::string> exact_tensors;
  std::string set;
  std::string where;  // "FILE:LINE", for errors
};

/// Throws InvalidRequest whose field is "FILE" or "FILE:LINE: FIELD".
std::vector<GoldenRequest> read_golden_corpus(const std::string& path);

/// Makes the inputs of a problem and sets the elements of `set` in them. Throws InvalidRequest("set", ...).
Inputs make_golden_inputs(const Problem& problem, const std::string& set);

}  // namespace attest::golden

// SPDX-License-Identifier: Apache-2.0
// The mistakes that a diagnosis knows: each is one change of the contract's reading.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "reference/diagnose/evidence.h"
#include "reference/diagnose/reading.h"

namespace attest::diagnose {

struct Hypothesis {
  std::string name;    // "causal-top-left"; tile faults of all sizes and places share one
  std::string detail;  // "tile 3 of 64 keys"; empty where the name says all
  std::string says;    // "attention with causal top-left"
  std::string fix;
  std::function<void(Reading&)> change;
};

/// Those that can make a difference for this problem, common causes first.
std::vector<Hypothesis> hypotheses_for(const Evidence& evidence);

/// Parts of the list, in hypotheses_*.cpp.
void add_mask_hypotheses(const Evidence& evidence, std::vector<Hypothesis>& list);
void add_score_hypotheses(const Evidence& evidence, std::vector<Hypothesis>& list);
void add_place_hypotheses(const Evidence& evidence, std::vector<Hypothesis>& list);
void add_softmax_hypotheses(const Evidence& evidence, std::vector<Hypothesis>& list);
void add_dropout_hypotheses(const Evidence& evidence, std::vector<Hypothesis>& list);
void add_tile_hypotheses(const Evidence& evidence, std::vector<Hypothesis>& list);
void add_backward_hypotheses(const Evidence& evidence, std::vector<Hypothesis>& list);

}  // namespace attest::diagnose

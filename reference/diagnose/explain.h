// SPDX-License-Identifier: Apache-2.0
// From wrong values to what was computed instead: every hypothesis, alone and in pairs, is held against the outputs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "reference/diagnose/evaluate.h"
#include "reference/diagnose/evidence.h"
#include "reference/diagnose/hypotheses.h"

namespace attest::diagnose {

/// Rows, for dk and dv key/value heads, and rows of dbias on which outputs are compared.
struct Sample {
  std::vector<RowAt> rows = {};
  std::vector<HeadAt> heads = {};
  std::vector<RowAt> bias_rows = {};  // in the bias's own indices
};

struct TensorFit {
  std::string tensor;
  std::int64_t total = 0;
  std::int64_t explained = 0;  // elements within their tolerance
  std::int64_t unknown = 0;    // elements of which the reading says nothing, not in `total`
  double squares = 0;          // of |got - value| / tolerance, each at most kMostScore^2

  /// Mean square; an unknown element counts as one at the edge of its tolerance.
  double misfit() const {
    const std::int64_t all = total + unknown;
    return all == 0 ? 0 : (squares + static_cast<double>(unknown)) / static_cast<double>(all);
  }
};

struct Fit {
  std::vector<TensorFit> tensors;  // those with elements compared

  double misfit() const;  // mean over tensors
  /// All known elements are within their tolerances, and some are known.
  bool explained() const;
  /// Some tensor has more explained elements than in `other`, of the same sample.
  bool explains_more_than(const Fit& other) const;
  const TensorFit* find(const std::string& tensor) const;
};

Fit fit_of(const Evaluator& evaluator, const Evidence& evidence, const Passes& passes, const Sample& sample);

/// Which passes go wrong.
enum class Scope : std::uint8_t { both, forward, backward, backward_own_softmax };
std::string_view name_of(Scope scope);

/// How one row or one key/value head fits the contract.
template <typename At>
struct Judged {
  At at;
  Fit fit;
};

struct Candidate {
  std::vector<std::size_t> changes;  // indices of the hypotheses, one or two
  Scope scope = Scope::both;
  Fit fit;
};

struct Explanation {
  std::vector<Hypothesis> hypotheses;  // all that were tried
  Fit contract;                        // how the outputs fit the contract, on all that was judged
  std::vector<Judged<RowAt>> rows_judged;
  std::vector<Judged<HeadAt>> heads_judged;
  Sample sample;                       // on which readings are ranked
  Fit contract_on_sample;
  std::int64_t rows = 0;               // of all
  std::int64_t heads = 0;              // key/value heads of all sequences, where there are dk and dv
  std::int64_t bias_rows = 0;          // of dbias
  std::vector<Candidate> ranking;      // best first; the first few
  bool pairs_tried = false;

  /// The outputs are the contract's, as far as this can see.
  bool as_contracted() const { return contract.explained(); }
  /// Candidates at the top that explain every compared element and cannot be told apart on it; empty where none does.
  std::vector<Candidate> causes() const;
  /// The best reading explains more than the contract does, though not everything.
  bool nearest_helps() const;
  std::string name_of(const Candidate& candidate) const;  // "causal-top-left + lse-base-2"
  std::string says(const Candidate& candidate) const;     // in words
};

/// The passes of a candidate; `changed` is filled with its reading.
Passes passes_of(const Explanation& explanation, const Candidate& candidate, const Reading& contract, Reading& changed);

Explanation explain(const Evidence& evidence);

}  // namespace attest::diagnose

// SPDX-License-Identifier: Apache-2.0
// The verdict of one case: states, the score of each tensor, and what else was found. Defined for people in
// docs/verdicts.md.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "reference/oracle/bound_parts.h"
#include "reference/problem/problem.h"
#include "reference/verify/case_cost.h"
#include "reference/verify/placement.h"

namespace attest {

enum class State : std::uint8_t { pass, fail, untrusted, unsupported, error, waived };
std::string_view name_of(State state);

/// Where an element is: sequence, head (of that tensor), token, column. -1 where the tensor lacks the dimension.
struct Place {
  std::int64_t b = -1;
  std::int64_t h = -1;
  std::int64_t i = -1;
  std::int64_t d = -1;
};
std::string print_place(const Place& place);  // "[b=0 h=1 i=3 d=17]"

struct TensorVerdict {
  std::string tensor;
  std::int64_t total = 0;
  std::int64_t wrong = 0;        // elements with a score over 1, or of another class (NaN, infinity)
  std::int64_t unspecified = 0;  // elements for which no bound can be stated, left out of the score
  double score = 0;              // max |got - want| / bound; infinity for a wrong class
  Place worst;                   // of the largest score; the first wrong class wins
  double want = 0;               // there, exact
  double got = 0;
  double bound = 0;
  std::string cluster;           // where the wrong elements are, in words
  std::vector<BoundPart> parts;  // of `bound`, where it was explained
  // Of random inputs: the errors over their expected deviation (docs/numerics.md, "Warnings"); NaN where not known.
  double rms = std::numeric_limits<double>::quiet_NaN();
  double bias = std::numeric_limits<double>::quiet_NaN();  // mean, positive away from 0
  bool powerless = false;        // an all-zero tensor would pass although the exact one is not zero

  double diff() const;
  /// What is no fault but worth a look, in words: "rms", "bias" or "loose" first.
  std::vector<std::string> warnings() const;
};

enum class Outcome : std::uint8_t { pass, fail, not_applicable, untrusted };
std::string_view name_of(Outcome outcome);

/// What one check said of the case; `checks/check_unit.h` has the checks.
struct CheckRecord {
  std::string check;
  Outcome outcome = Outcome::pass;
  std::string reason;  // of not_applicable and untrusted
  Cost cost;
};

struct Verdict {
  State state = State::pass;
  std::string kernel;   // its name
  std::string request;  // what --kernel takes to find it again
  Problem problem;
  std::vector<TensorVerdict> tensors;
  std::vector<Finding> findings;
  std::vector<CheckRecord> checks;
  std::string reason;  // of unsupported, untrusted and error
  std::string kind;    // of error: a FailureKind
  Coverage coverage;   // where a fault could hide on this case
  std::optional<Problem> smaller;  // the smallest case that fails in the same way, where one was looked for
  double seconds = 0;
  CaseCost cost;       // by phase

  /// The largest score over the tensors.
  double score() const;
  const TensorVerdict* worst_tensor() const;
};

}  // namespace attest

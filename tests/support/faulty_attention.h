// SPDX-License-Identifier: Apache-2.0
// Attention with one named mistake, in plain loops over tensors as they lie in memory: what the tests of the diagnosis
// are made from. It shares no code with reference/diagnose: masks and dropout are the slow oracle's, softmax is an online
// loop over tiles.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "reference/oracle/exact.h"
#include "reference/problem/inputs.h"
#include "reference/problem/layout.h"
#include "reference/problem/problem.h"

namespace attest::testing_support {

/// A tensor with its padding, contiguous in the problem's layout.
struct StoredTensorValues {
  Extents extents = {};
  Strides strides = {};
  std::vector<double> data;

  const double* row(std::int64_t b, std::int64_t r, std::int64_t h) const;
};

/// q, k, v and do with random padding.
struct StoredInputs {
  std::array<StoredTensorValues, 8> tensors;  // by TensorId
};
StoredInputs store(const Problem& problem, const Inputs& inputs, std::uint64_t seed);

enum class Where : std::uint8_t { both, forward, backward };

struct Fault {
  std::string cause;  // the name the diagnosis has for it
  std::int64_t number = 0;  // +-1, a tile's index, ...: what the fault needs
  std::int64_t tile = 0;
  Where where = Where::both;
};

/// Outputs of the mistake, in token order as Exact has them.
Exact faulty_attention(const Problem& problem, const Inputs& inputs, const StoredInputs& stored, const Fault& fault);

/// Every fault that changes something in such a problem.
std::vector<Fault> faults_for(const Problem& problem);

/// All causes that there are, for the confusion table.
const std::vector<std::string>& all_causes();

}  // namespace attest::testing_support

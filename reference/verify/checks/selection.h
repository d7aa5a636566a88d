// SPDX-License-Identifier: Apache-2.0
// Some sequences and key/value heads of a case, in any order, as a case of its own with its inputs and exact answer.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/verify/checks/check_unit.h"

namespace attest {

struct Selection {
  Problem problem;
  Inputs inputs;
  ExactWithBounds truth;
};

/// Strides of the case are dropped, and the gradient of the bias, which sums over what may be left out. Dropout must be
/// off: its mask counts sequences and heads.
Selection select(const CheckContext& context, const std::vector<std::int64_t>& sequences,
                 const std::vector<std::int64_t>& heads_kv);

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// The checks, each defined in the file of its name.
#pragma once

#include "reference/verify/checks/check_unit.h"

namespace attest {

extern const CheckUnit kWritten;
extern const CheckUnit kGuards;
extern const CheckUnit kInputsUnchanged;
extern const CheckUnit kHidden;
extern const CheckUnit kNanKey;
extern const CheckUnit kPrefix;
extern const CheckUnit kRerun;
extern const CheckUnit kHistory;
extern const CheckUnit kNeighbours;
extern const CheckUnit kLayouts;
extern const CheckUnit kZeroGradient;
extern const CheckUnit kAlone;
extern const CheckUnit kReordered;
extern const CheckUnit kSameMask;
extern const CheckUnit kEmpty;
extern const CheckUnit kLinear;
extern const CheckUnit kKeyOrder;
extern const CheckUnit kSplit;
extern const CheckUnit kShift;
extern const CheckUnit kSums;
extern const CheckUnit kDerivative;
extern const CheckUnit kAdditive;
extern const CheckUnit kGridLimits;
extern const CheckUnit kLargeOffsets;
extern const CheckUnit kRefusals;

}  // namespace attest

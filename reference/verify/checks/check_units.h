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

}  // namespace attest

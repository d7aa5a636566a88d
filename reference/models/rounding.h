// SPDX-License-Identifier: Apache-2.0
// Rounding of intermediates to storage types in bulk: the points where a kernel keeps P or dS in its input type. Same
// values as round_to of dtype.h (tests compare them), but vectorisable.
#pragma once

#include <cstdint>

#include "reference/problem/dtype.h"

namespace attest {

void round_all(Dtype type, float* x, std::int64_t count);
void round_all(Dtype type, double* x, std::int64_t count);

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// Changes a problem so that an exact family fits it: lengths, masks, scale. Layout, heads, padding and types stay.
#pragma once

#include <string_view>

#include "reference/problem/problem.h"

namespace attest {

/// `problem` with the family as its fill; lengths are never made longer than they are, but for the few keys that a family
/// needs at least.
Problem with_exact_family(Problem problem, std::string_view family);

}  // namespace attest

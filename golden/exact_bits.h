// SPDX-License-Identifier: Apache-2.0
// Which elements of a case are compared bit for bit: a single number of the output type lies within their bound, which is 0
// where that number is the exact value, and else (exp(-110) of a key that is all but hidden, ln 2 as a float32) the distance
// between the two.
//
// A gradient is only asked for its bits where float32 arithmetic with P not rounded, whose exp errs, gives them as well as
// arithmetic that rounds P to 16 bits: so that what is more exact than a profile never fails.
#pragma once

#include "golden/golden_case.h"

namespace attest::golden {

/// Marks the outputs that `exact_tensors` names, and of the exact families (fill=exact-...) the elements that have a closed
/// form; names the outputs that these fill wholly. Throws InvalidRequest("exact", ...) for a name that is no output with
/// bits, or an element that is not exact to the last bit.
void mark_exact_bits(GoldenCase& golden);

/// Whether one number of `type` alone lies within `bound` of `exact`.
bool is_bit_for_bit(Dtype type, double exact, double bound);

}  // namespace attest::golden

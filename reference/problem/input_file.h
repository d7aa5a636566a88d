// SPDX-License-Identifier: Apache-2.0
// Captured tensors: the inputs of a Problem from a safetensors file (fill=file:PATH).
#pragma once

#include "reference/problem/inputs.h"
#include "reference/problem/problem.h"

namespace attest {

/// Tensors q, k, v, and where the problem uses them and the file has them do, dlse and bias, of any float type that
/// holds values of the problem's type exactly. Shapes:
///   q k v do   padded [B, rows, heads, width], packed [rows, heads, width]; token i of a sequence is where the
///              problem's padding side puts it
///   dlse       padded [B, Hq, rows], packed [Hq, rows]
///   bias       [B|1, Hq|1, max Sq|1, max Sk|1]
/// Throws InvalidRequest naming the tensor, what was found and what is needed.
Inputs read_captured_inputs(const Problem& problem);

}  // namespace attest

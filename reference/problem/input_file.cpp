// SPDX-License-Identifier: Apache-2.0
#include "reference/problem/input_file.h"

#include "reference/problem/invalid_request.h"

namespace attest {

Inputs read_captured_inputs(const Problem& problem) {
  throw InvalidRequest("fill", "file:" + problem.fill.path, "captured tensors cannot be read yet");
}

}  // namespace attest

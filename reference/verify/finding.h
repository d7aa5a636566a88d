// SPDX-License-Identifier: Apache-2.0
// Something found wrong by a check other than the values.
#pragma once

#include <string>

namespace attest {

/// `check` is the name of the check: "unwritten", "guard", "gap", "input", or a check unit's.
struct Finding {
  std::string check;
  std::string tensor;   // the tensor it was seen on; empty where it is no one tensor's
  std::string message;  // what was seen, where, in a sentence
  bool by_value = false;  // values of a variant of the case are off: no news where the case's own are
};

}  // namespace attest

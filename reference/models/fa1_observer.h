// SPDX-License-Identifier: Apache-2.0
// Lets tests see FA1's invariant: after every key tile, O is the exact attention over the keys so far (Theorem 1).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "reference/models/model_options.h"
#include "reference/problem/kernel_abi.h"

namespace attest {

/// Called for every head after every key tile with the number of keys so far and O [Sq, Dv].
using Fa1Observer = std::function<void(std::int64_t keys_seen, const std::vector<double>& o)>;

void fa1_forward_observed(const attest_call& call, const ModelOptions& options, const Fa1Observer* observer);

}  // namespace attest

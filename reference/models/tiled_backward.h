// SPDX-License-Identifier: Apache-2.0
// The tiled backward that the models share. Its arithmetic is the same in both papers; they differ in what moves.
#pragma once

#include <cstdint>

#include "reference/models/model_options.h"
#include "reference/problem/kernel_abi.h"

namespace attest {

enum class BackwardForm : std::uint8_t {
  fa1,  // Dao et al. 2022, Algorithm 4: delta recomputed from O for every tile, l and m read
  fa2,  // Dao 2023, Algorithm 2: delta computed once and stored, the logsumexp read
};

/// Expects a call that why_invalid() accepts.
void tiled_backward(const attest_call& call, const ModelOptions& options, BackwardForm form);

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// What the standard algorithm moves, step by step (Dao et al. 2022, Algorithms 0 and 3), for one query head: S and P
// go to slow memory and back. Mask and dropout are kernels of their own, as in the frameworks of the paper's time. The
// backward reads the P that the forward stored; the ABI has no place for it, so the model makes it again off the books.
#pragma once

#include <cstdint>

#include "reference/models/ledger.h"
#include "reference/problem/kernel_abi.h"

namespace attest {

void count_standard_forward(const attest_problem& problem, std::int64_t queries, std::int64_t keys, Ledger& ledger);
void count_standard_backward(const attest_problem& problem, std::int64_t queries, std::int64_t keys, Ledger& ledger);

}  // namespace attest

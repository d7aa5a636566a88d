// SPDX-License-Identifier: Apache-2.0
// Slow-memory traffic in closed form, for one query head of N queries and N keys of width d, without masks, where the
// tiles divide N. The ledgers count the same to the word (tests/ledger_test.cpp). Also the sums of tensors that the
// memory table of the FlashAttention paper (Table 21) follows from.
#pragma once

#include <cstdint>
#include <string_view>

#include "reference/models/ledger.h"

namespace attest {

struct TrafficShape {
  std::int64_t n;           // queries and keys
  std::int64_t d;           // D and Dv
  std::int64_t query_tile;  // Br
  std::int64_t key_tile;    // Bc
  std::int64_t splits = 1;  // parts of the keys that hold any
};

/// Elements of a model's forward or backward; the name is that of the kernel. Throws InvalidRequest for other names.
Traffic forward_traffic(std::string_view model, const TrafficShape& shape);
Traffic backward_traffic(std::string_view model, const TrafficShape& shape);

/// The seven passes over N x N that mask and dropout kernels add to the standard algorithm, in two-byte elements: mask
/// (read and write S), dropout (read P, write P and a one-byte mask), its backward (read dP and the mask, write dP).
inline constexpr std::int64_t kMaskAndDropoutPasses = 7;

/// Bytes that forward and backward take, inputs and outputs with them (FlashAttention, Table 21), f16, `heads` = B H.
/// Standard: S, P, dP, dS and 10 tensors of N x d. Flash: 11 tensors of N x d and two float vectors of N; two more
/// N x d, a float temporary, where there is more than one key tile of 256. The counts of tensors are fitted to the
/// printed table, which they reproduce in every entry from N = 128 to 65536.
std::int64_t standard_memory_bytes(std::int64_t heads, std::int64_t n, std::int64_t d);
std::int64_t flash_memory_bytes(std::int64_t heads, std::int64_t n, std::int64_t d);

}  // namespace attest

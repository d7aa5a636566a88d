// SPDX-License-Identifier: Apache-2.0
// Philox4x32 from its definition (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC 2011),
// for the slow oracle alone.
#pragma once

#include <array>
#include <cstdint>

namespace attest::slow {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key,
                                        int rounds = 10);

}  // namespace attest::slow

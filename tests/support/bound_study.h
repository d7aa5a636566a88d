// SPDX-License-Identifier: Apache-2.0
// How close the results of correct kernels come to their bounds, over random cases of every type, family and feature.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "reference/oracle/bound.h"
#include "reference/problem/kernel_abi.h"

namespace attest {

inline constexpr std::array<const char*, 6> kStudied = {"o", "lse", "dq", "dk", "dv", "d_bias"};

/// error / bound of every element of a tensor whose bound is finite and not zero.
using Ratios = std::vector<float>;

struct StudiedCase {
  std::array<Ratios, 6> ratios;  // by kStudied
  std::int64_t elements = 0;
  std::int64_t unspecified = 0;
  std::string error;  // not empty: the kernel did not run
};

/// The case of a seed; lengths 1 to `longest`.
Problem study_problem(std::uint64_t seed, std::int64_t longest);

/// The mode that the case's family is judged in.
BoundMode study_mode(const Problem& problem);

StudiedCase study(const attest_kernel& kernel, const Problem& problem, BoundMode mode);

}  // namespace attest

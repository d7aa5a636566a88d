// SPDX-License-Identifier: Apache-2.0
// The keys and values of one key/value head as the bound's products take them, and the sums over rows that its dk and dv
// need. The rows of a head are dealt to several pieces, so that threads can share one head; join() adds the pieces up.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/oracle/bound.h"
#include "reference/oracle/bound_operands.h"
#include "reference/oracle/bound_row.h"
#include "reference/oracle/sweep.h"

namespace attest {

inline constexpr std::int64_t kBoundRows = 64;  // queries of one block of the bound

/// Powers of two by which the tensors are divided.
struct Units {
  double q, k, v, d_o;
};

/// Keys and values of one key/value head of one sequence.
template <typename Real>
struct Group {
  std::int64_t b;
  std::int64_t head_kv;
  std::int64_t first_k;
  std::int64_t seq_k;
  std::int64_t queries;
  BoundOperand<Real> k, v;
  Eigen::ArrayXd v_low, v_high;  // [Dv] smallest and largest value of each column
};

/// Sums over some rows of a group, for its dk and dv.
template <typename Real>
struct GroupSums {
  const Group<Real>* group;
  std::vector<RowBlock> blocks;
  RealMatrix<Real> dk, dv;            // [Sk, D], [Sk, Dv]
  RealMatrix<Real> common_dk;         // [Sk, D] what errors of D that all rows share make of dk
  RealRow<Real> mass, flushed;        // [Sk] sum of P, and of the P that may be flushed
  std::vector<std::uint8_t> trusted;  // [Sk]
  std::vector<std::uint8_t> seen;     // [Sk]
  std::vector<std::uint8_t> covered;  // [Sk] losing the key would show in LSE, dk or dv
  Coverage coverage;                  // edges and rows; keys at the end
  GroupErrors errors;
};

template <typename Real>
std::vector<Group<Real>> make_groups(const Problem& problem, const Inputs& inputs, const Units& units, bool squares);

/// The pieces of all groups, which must outlive them.
template <typename Real>
std::vector<GroupSums<Real>> make_sums(const Problem& problem, const std::vector<Group<Real>>& groups);

/// The sums of a group's later pieces join its first one; the others' `group` becomes null.
template <typename Real>
void join(std::vector<GroupSums<Real>>& all);

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// What checks have in common when they look at another run of the kernel: the same bits where it promises them, else
// within the bounds of the exact answer. No tolerance is chosen anywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "reference/verify/checks/check_unit.h"

namespace attest {

/// True for the rows (sequence, head of that tensor, token) that are compared; empty: all.
using RowFilter = std::function<bool(std::int64_t b, std::int64_t h, std::int64_t i)>;
struct Compared {
  RowFilter queries;      // of o, lse and dq
  RowFilter keys;         // of dk and dv
  bool forward = true;
  bool backward = true;
};

/// Takes the findings of a run over; false, with the outcome set, where it gave no answer.
bool answered(const KernelRun& run, const std::string& when, CheckResult& result);

/// The run must repeat the case's own answer: bit for bit in the directions for which the kernel promises it, within
/// the bounds in the others.
void expect_repeats(const CheckContext& context, const KernelRun& run, const std::string& when, CheckResult& result,
                    const Compared& compared = {});

/// Each element within its bound.
void expect_truth(const Problem& problem, const ExactWithBounds& truth, const KernelRun& run, const std::string& when,
                  CheckResult& result);

/// The case's truth for a variant with the same exact answer: its own bounds where the kernel declares the same
/// arithmetic for both, else new ones.
ExactWithBounds truth_for(const CheckContext& context, const Problem& variant, const Inputs& inputs);
/// Bounds for `variant` around a known exact answer in natural units with -inf for empty rows.
ExactWithBounds bounds_around(const CheckContext& context, const Problem& variant, const Inputs& inputs, Exact exact);
/// The same by the given kind of bound, for a variant whose errors do not behave as those of the case's family.
ExactWithBounds bounds_around(const CheckContext& context, const Problem& variant, const Inputs& inputs, Exact exact, BoundMode mode);
/// True where the kernel declares the same arithmetic for a variant, so that the case's bounds hold for it.
bool same_numerics(const CheckContext& context, const Problem& variant);
/// True where the kernel keeps to the contract's o and lse, so that its truth is the exact answer itself.
bool plain_conventions(const CheckContext& context);

/// True where elements of the tensor share their storage, so that none can be changed alone.
bool is_expanded(const Problem& problem, TensorId id);

/// Keys that no query of the group may see by lengths, causal, window and masks: [tokens_k, Hkv], 1 unseen.
std::vector<char> unseen_keys(const Problem& problem, const Inputs& inputs);

}  // namespace attest

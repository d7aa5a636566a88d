// SPDX-License-Identifier: Apache-2.0
// Faulty outputs of random problems, and what the diagnosis makes of them.
#pragma once

#include <cstdint>
#include <string>

#include "reference/diagnose/explain.h"
#include "tests/support/faulty_attention.h"

namespace attest::testing_support {

/// The outputs of the fault, rounded as the problem's types say, diagnosed. An empty cause is a right kernel.
diagnose::Explanation diagnose_fault(const Problem& problem, const Fault& fault);

/// A small random problem of type f32, f16 or bf16 with one to four features.
Problem random_problem(std::uint64_t seed, std::uint64_t index);

/// One of the problem's faults: a cause is as likely as any other, however many tiles it could strike at.
Fault random_fault(const Problem& problem, std::uint64_t seed, std::uint64_t index);

/// True where `cause` is named first, alone or among readings that give the same values here.
bool named_first(const diagnose::Explanation& explanation, const std::string& cause);
/// The name that comes first: a cause, "(none)", "(as contracted)".
std::string first_name(const diagnose::Explanation& explanation, const std::string& prefer);

}  // namespace attest::testing_support

// SPDX-License-Identifier: Apache-2.0
// The whole runbook over a capture, or its last part over a failing case: lines for people and JSON for machines.
#pragma once

#include <string>

#include "reference/diagnose/evidence.h"
#include "reference/diagnose/findings.h"

namespace attest::diagnose {

struct Diagnosis {
  Lines lines;
  bool wrong = false;        // some stage found a fault
  double seconds = 0;
};

/// Every stage that the evidence allows.
void diagnose_evidence(const Evidence& evidence, Diagnosis& diagnosis);
/// The stages that speak of outputs: nan, values, where.
void diagnose_outputs(const Evidence& evidence, Diagnosis& diagnosis);

/// Throws InvalidRequest where the file is no capture.
Diagnosis diagnose_capture(const std::string& path, const std::string& numerics = "");

/// A block of text: stage, mark, what, and the fix below it.
std::string print(const Diagnosis& diagnosis);
std::string json(const Diagnosis& diagnosis);

}  // namespace attest::diagnose

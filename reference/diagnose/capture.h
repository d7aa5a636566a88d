// SPDX-License-Identifier: Apache-2.0
// A capture: the tensors of one attention call in a safetensors file, with metadata in the case text's words. Format and
// how to write one from PyTorch: docs/diagnosis.md.
#pragma once

#include <string>

#include "reference/diagnose/evidence.h"
#include "reference/diagnose/findings.h"
#include "reference/problem/safetensors.h"

namespace attest::diagnose {

struct Capture {
  SafetensorsFile file;  // mapped; the evidence points into it
  Evidence evidence;
  bool usable = false;   // contract and offsets hold well enough for the other stages
};

/// Reads what the file claims and adds the stages "contract" and "offsets". `numerics` names a preset; empty: by type.
/// Throws InvalidRequest where the file is no capture: unreadable, no q, k and v, metadata that no case has.
Capture read_capture(const std::string& path, const std::string& numerics, Lines& lines);

/// Adds what is odd about strides that the metadata states as text, one for each dimension; throws where they are none.
void check_strides(const StoredTensor& tensor, const std::string& text, Layout layout, Lines& lines);

/// Lengths of the sequences of one side, with what is odd about them. `given` may be offsets or lengths.
struct Lengths {
  std::vector<std::int64_t> lengths;
  bool usable = true;
};
Lengths check_offsets(const char* name, const std::vector<std::int64_t>& given, std::int64_t rows, Lines& lines);
Lengths check_lengths(const char* name, const std::vector<std::int64_t>& given, std::int64_t batch, std::int64_t rows, Lines& lines);

}  // namespace attest::diagnose

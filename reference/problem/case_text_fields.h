// SPDX-License-Identifier: Apache-2.0
// The table of case text fields. Internal to case_text.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/problem/problem.h"

namespace attest {

/// What has been read so far; settled into a Problem when all fields are known.
struct CaseDraft {
  Problem problem;
  std::optional<std::int64_t> batch;
  bool has_lengths_q = false;
  bool has_lengths_k = false;
  std::optional<std::vector<std::int64_t>> cu_q;  // [B + 1]
  std::optional<std::vector<std::int64_t>> cu_k;  // [B + 1]
  std::array<std::vector<std::int64_t>, 8> strides;  // by TensorId; as many numbers as were given
};

struct CaseField {
  std::string_view name;
  std::string_view form;
  std::string_view meaning;
  void (*parse)(CaseDraft& draft, std::string_view value);
  std::string (*print)(const Problem& problem);  // "" where there is nothing to say; null: never printed
};

/// In the order in which they are printed.
std::span<const CaseField> case_fields();

/// Offsets become lengths, once the layout is known.
void settle_offsets(CaseDraft& draft);
/// Strides take their meaning from the layout.
void settle_strides(CaseDraft& draft);

}  // namespace attest

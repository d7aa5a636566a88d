// SPDX-License-Identifier: Apache-2.0
// What a stage of the diagnosis found: one line with evidence, and what to do about it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attest::diagnose {

enum class Level : std::uint8_t { ok, note, warning, fault };

struct Line {
  std::string stage;  // "contract" "offsets" "coverage" "non-finite" "range" "scale" "dropout" "bound" "nan" "values" "where"
  Level level = Level::ok;
  std::string what;
  std::string fix;  // empty where there is nothing to do
};

using Lines = std::vector<Line>;

}  // namespace attest::diagnose

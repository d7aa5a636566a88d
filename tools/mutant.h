// SPDX-License-Identifier: Apache-2.0
// A mutant: a kernel with one planted defect, as a plugin that carries the header of its patch (tests/mutants).
#pragma once

#include <string>
#include <vector>

#include "reference/verify/kernel.h"

namespace attest::tools {

struct Mutant {
  Kernel kernel;
  std::string title;      // the defect in a sentence
  std::string origin;     // the published bug it is made after
  std::string kind;       // its kind in that catalogue
  std::string direction;  // forward, backward, both
  std::string original;   // the built-in kernel that was mutated
  std::string smallest;   // a case that must fail
  std::string proof;      // how the slow oracle shows it: value, hidden, untouched
  std::string expected;   // the check expected to catch it
};

/// Throws InvalidRequest("mutants", ...) for a library that is not a mutant.
Mutant load_mutant(const std::string& library);
/// All plugins of the folders and the libraries named, by name.
std::vector<Mutant> load_mutants(const std::vector<std::string>& paths);

}  // namespace attest::tools

// SPDX-License-Identifier: Apache-2.0
// `attest checks`: the checks beside the values, and the kinds of bugs that each is for.
#include <string>

#include <fmt/format.h>

#include "reference/verify/checks/check_unit.h"
#include "tools/commands.h"

namespace attest::tools {

Run add_checks(CLI::App& app) {
  app.add_subcommand("checks", "List the checks that `attest verify` runs beside the values")
      ->footer("Kinds of bugs (K01 ...) and mutations (M01 ...) are those of docs/checks.md.");
  return [] {
    fmt::print("{:<12} {}\n", "values", "each element within its bound; always on");
    for (const CheckUnit* unit : check_units()) fmt::print("{:<12} {}\n{:<12}   for {}\n", unit->name, unit->claim, "", unit->bugs);
    return 0;
  };
}

}  // namespace attest::tools

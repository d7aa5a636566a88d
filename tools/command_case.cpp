// SPDX-License-Identifier: Apache-2.0
// `attest case TEXT`: normalises a case and says what it asks for.
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "reference/problem/case_text.h"
#include "reference/verify/case_facts.h"
#include "tools/commands.h"

namespace attest::tools {

Run add_case(CLI::App& app) {
  auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand("case", "Normalise a case and explain it: sizes, work, what is visible, what to return");
  command->add_option("text", *words, "case text, as one argument or several");
  command->footer("Example:\n"
                  "  attest case 'layout=thd heads=6/2 q=3,0 k=5,2 causal=bottom-right'\n"
                  "\nFields:\n" + case_text_help());
  return [words] {
    fmt::print("{}", explain_case(parse_case(fmt::format("{}", fmt::join(*words, " ")))));
    return 0;
  };
}

}  // namespace attest::tools

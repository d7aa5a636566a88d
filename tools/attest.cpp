// SPDX-License-Identifier: Apache-2.0
// The `attest` command.
#include <cstdio>
#include <exception>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "reference/problem/invalid_request.h"
#include "tools/commands.h"

namespace {

constexpr int kUsage = 2;

int run(int argc, char** argv) {
  CLI::App app{"Proves attention kernels right or wrong: every output and gradient element is held against an exact\n"
               "oracle and a computed error bound."};
  app.name("attest");
  app.set_version_flag("--version", "attest " ATTEST_VERSION);
  app.require_subcommand(1);
  app.footer("Examples:\n"
             "  attest verify                                    every built-in kernel that can run here\n"
             "  attest verify --kernel ./libmine.so --time 60    your kernels, for a minute\n"
             "  attest gate --kernel ./libmine.so                for CI: a minute of cases, reports in report/\n"
             "  attest case 'q=5 k=2 causal=bottom-right'        what a case asks for\n"
             "  attest io 'dtype=f16 heads=16 q=1024 k=1024'     what each algorithm moves between memories\n"
             "\nExit codes: 0 all pass; 1 any fail, untrusted or error, or nothing ran; 2 usage or environment;\n"
             "130 interrupted (reports are complete up to there).");
  const std::vector<std::pair<std::string, attest::tools::Run>> commands = {
      {"verify", attest::tools::add_verify(app)},
      {"kernels", attest::tools::add_kernels(app)},
      {"bench", attest::tools::add_bench(app)},
      {"case", attest::tools::add_case(app)},
      {"diagnose", attest::tools::add_diagnose(app)},
      {"io", attest::tools::add_io(app)},
      {"checks", attest::tools::add_checks(app)},
      {"gate", attest::tools::add_gate(app)},
      {"worker", attest::tools::add_worker(app)},
      {"golden", attest::tools::add_golden(app)},
      {"mutants", attest::tools::add_mutants(app)},
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help and version are "errors" with exit code 0.
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  for (const auto& [name, command] : commands) {
    if (app.got_subcommand(name)) return command();
  }
  return kUsage;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const attest::InvalidRequest& error) {
    fmt::print(stderr, "attest: {}\n", error.what());
  } catch (const std::exception& error) {
    fmt::print(stderr, "attest: {}\n", error.what());
  }
  return kUsage;
}

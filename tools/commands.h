// SPDX-License-Identifier: Apache-2.0
// The subcommands of `attest`: each adds itself to the parser and runs when it was chosen. A command returns its
// exit code (0 all pass, 1 any fail, untrusted, error or nothing ran, 2 usage or environment, 130 interrupted).
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

namespace attest::tools {

using Run = std::function<int()>;

/// Adds the subcommand to `app` and returns what runs it.
Run add_verify(CLI::App& app);
Run add_kernels(CLI::App& app);
Run add_bench(CLI::App& app);
Run add_case(CLI::App& app);
Run add_diagnose(CLI::App& app);
Run add_io(CLI::App& app);
Run add_checks(CLI::App& app);
Run add_gate(CLI::App& app);
Run add_worker(CLI::App& app);
Run add_golden(CLI::App& app);
Run add_mutants(CLI::App& app);

}  // namespace attest::tools

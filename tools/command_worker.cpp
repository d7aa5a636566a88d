// SPDX-License-Identifier: Apache-2.0
// `attest worker`: the process in which a kernel runs. Started by the other commands, not by people.
#include <cstdint>
#include <memory>
#include <string>

#include "reference/verify/worker/serve.h"
#include "tools/builtin.h"
#include "tools/commands.h"

namespace attest::tools {

Run add_worker(CLI::App& app) {
  struct Options {
    std::string request;
    std::uint64_t arena = 0;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("worker", "")->group("");
  command->add_option("request", options->request)->required();
  command->add_option("arena", options->arena)->required();
  return [options] {
    const auto select = [](const std::string& request) { return select_kernels({request}, builtin_kernels()); };
    return serve_kernels(options->request, options->arena, {select, memory_for});
  };
}

}  // namespace attest::tools

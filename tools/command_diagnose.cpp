// SPDX-License-Identifier: Apache-2.0
// `attest diagnose FILE`: from a capture to the cause.
#include <chrono>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "reference/diagnose/diagnosis.h"
#include "tools/commands.h"

namespace attest::tools {
namespace {

struct Options {
  std::string file;
  std::string numerics;
  bool json = false;
  bool time = false;
};

}  // namespace

Run add_diagnose(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("diagnose", "Find the cause of NaN or wrong values in a capture of one attention call");
  command->add_option("file", options->file, "a safetensors file: q k v, what else there is, and the call as metadata")->required();
  command->add_option("--numerics", options->numerics, "arithmetic of the kernel: f32-simt f16-tensorcore bf16-tensorcore hopper-f16 hopper-bf16 hopper-fp8 emulated-f64; default by type");
  command->add_flag("--json", options->json, "print one JSON object");
  command->add_flag("--time", options->time, "print the seconds that it took");
  command->footer("Goes through contract, offsets, coverage, non-finite inputs, score range, scale, dropout and bound; then through\n"
                  "the outputs: where NaN come from, which mistake explains wrong values, and where they lie.\n"
                  "How to write a capture from PyTorch: docs/diagnosis.md.\n"
                  "\nExit codes: 0 nothing wrong, 1 something is, 2 usage, or the file is no capture.\n"
                  "\nExample:\n"
                  "  attest diagnose capture.safetensors --time");
  return [options] {
    const diagnose::Diagnosis diagnosis = diagnose::diagnose_capture(options->file, options->numerics);
    fmt::print("{}\n", options->json ? diagnose::json(diagnosis) : diagnose::print(diagnosis));
    if (options->time) fmt::print(stderr, "{:.2f} s\n", diagnosis.seconds);
    return diagnosis.wrong ? 1 : 0;
  };
}

}  // namespace attest::tools

// SPDX-License-Identifier: Apache-2.0
// `attest io TEXT`: what each algorithm moves between slow and fast memory for a case, as a table, JSON and a drawing.
#include <cmath>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "reference/models/io_report.h"
#include "reference/problem/case_text.h"
#include "reference/problem/input_operands.h"
#include "reference/problem/invalid_request.h"
#include "reference/verify/abi_problem.h"
#include "tools/commands.h"
#include "tools/output_file.h"

namespace attest::tools {
namespace {

struct Options {
  std::vector<std::string> words;
  std::uint64_t fast_bytes = static_cast<std::uint64_t>(IoMachine{}.fast_bytes);
  double gigabytes = IoMachine{}.bandwidth / 1e9;
  double teraflops = IoMachine{}.rate / 1e12;
  std::vector<std::string> ledgers;
  std::string svg, json;
};

double positive(const char* field, double value) {
  if (!(value > 0) || !std::isfinite(value))
    throw InvalidRequest(field, fmt::format("{}", value), "a finite number above 0");
  return value;
}

IoMachine machine_of(const Options& options) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40;
  if (options.fast_bytes > kMostBytes)
    throw InvalidRequest("fast-memory", fmt::format("{} bytes", static_cast<std::int64_t>(options.fast_bytes)),
                         "1 byte to 1 TiB");  // a negative number wraps around
  return {static_cast<std::int64_t>(options.fast_bytes), positive("bandwidth", options.gigabytes) * 1e9,
          positive("rate", options.teraflops) * 1e12};
}

/// The case with its block mask, the only operand whose values decide what moves.
class IoCase {
 public:
  explicit IoCase(const std::string& text) : problem_(parse_case(text)), abi_(problem_) {
    if (!problem_.block) return;
    constexpr std::int64_t kMostBlocks = std::int64_t{1} << 28;
    const BlockMask& block = *problem_.block;
    const std::int64_t blocks = (problem_.max_q() / block.rows + 1) * (problem_.max_k() / block.cols + 1);
    if (blocks > kMostBlocks / (problem_.batch() * problem_.heads_q))
      throw InvalidRequest("block", fmt::format("{} blocks a head", blocks), fmt::format("at most {} in all", kMostBlocks));
    Problem mask_only = problem_;
    mask_only.bias.reset(), mask_only.mask.reset(), mask_only.alibi = mask_only.d_lse = mask_only.d_bias = false;
    add_operands(mask_only, inputs_);
    Operand<std::uint8_t>& mask = inputs_.block_mask;
    const auto stride = [](std::int64_t extent, std::int64_t elements) { return extent == 1 ? 0 : elements; };
    block_mask_ = {mask.data.data(), stride(mask.extent_b, mask.extent_h * mask.extent_q * mask.extent_k),
                   stride(mask.extent_h, mask.extent_q * mask.extent_k), mask.extent_k, 1};
  }
  const Problem& problem() const { return problem_; }
  const attest_problem& abi() const { return *abi_.get(); }
  const attest_operand* block_mask() const { return problem_.block ? &block_mask_ : nullptr; }

 private:
  Problem problem_;
  AbiProblem abi_;
  Inputs inputs_;
  attest_operand block_mask_{};
};

nlohmann::json phase_json(const PhaseCounts& phase) {
  nlohmann::json tensors = nlohmann::json::object();
  for (std::size_t tensor = 0; tensor < kMovedCount; ++tensor)
    if (const Traffic& moved = phase.slow[tensor]; moved.reads + moved.writes > 0)
      tensors[std::string(name_of(static_cast<Moved>(tensor)))] = {{"reads", moved.reads}, {"writes", moved.writes}};
  return {{"name", phase.name},
          {"slow", tensors},
          {"fast", {{"reads", phase.fast.reads}, {"writes", phase.fast.writes}}},
          {"matmul_flops", phase.matmul_flops},
          {"other_flops", phase.other_flops}};
}

nlohmann::json report_json(const IoCase& one, const IoReport& report) {
  nlohmann::json models = nlohmann::json::array();
  for (const IoRow& row : report.rows) {
    nlohmann::json phases = nlohmann::json::array();
    for (const PhaseCounts& phase : row.ledger.phases())
      if (phase.total().reads + phase.total().writes + phase.matmul_flops + phase.other_flops > 0)
        phases.push_back(phase_json(phase));
    nlohmann::json tiles = nullptr;
    if (row.key_tile > 0) tiles = {{"query", row.query_tile}, {"key", row.key_tile}};
    models.push_back({{"model", row.model},
                      {"tiles", tiles},
                      {"reads", row.ledger.total().reads},
                      {"writes", row.ledger.total().writes},
                      {"bytes", row.bytes},
                      {"matmul_flops", row.ledger.matmul_flops()},
                      {"other_flops", row.ledger.other_flops()},
                      {"flops_per_byte", row.intensity},
                      {"floor_seconds", row.seconds},
                      {"peak_fast_elements", row.ledger.peak_fast()},
                      {"extra_slow_elements", row.ledger.extra_slow()},
                      {"phases", phases}});
  }
  return {{"case", print_case(one.problem())},
          {"fast_bytes", report.machine.fast_bytes},
          {"element_bytes", report.element_bytes},
          {"bandwidth_bytes_per_second", report.machine.bandwidth},
          {"rate_flops_per_second", report.machine.rate},
          {"models", models}};
}

void write(std::ofstream& file, const std::string& text) {
  file << text;
  file.close();
  if (!file) throw std::runtime_error("a file could not be written to its end (is the disk full?)");
}

int run_io(const Options& options) {
  const IoMachine machine = machine_of(options);
  const IoCase one(fmt::format("{}", fmt::join(options.words, " ")));
  const IoReport report = io_report(one.abi(), one.block_mask(), machine);
  std::ofstream svg = open_output("svg", options.svg), json = open_output("json", options.json);
  fmt::print("{}", print_table(report));
  for (const std::string& model : options.ledgers)
    for (const IoRow& row : report.rows)
      if (row.model == model) fmt::print("\n{}", print_ledger(row));
  if (json.is_open()) write(json, report_json(one, report).dump(2) + "\n");
  if (svg.is_open()) write(svg, draw_traffic(one.abi(), machine));
  return 0;
}

}  // namespace

Run add_io(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "io", "What each algorithm reads, writes and computes for a case, with a given size of fast memory");
  command->add_option("text", options->words, "case text, as one argument or several");
  command->add_option("--fast-memory", options->fast_bytes, "bytes of fast memory, 98304 or 192KiB (default 192KiB)")
      ->transform(CLI::AsSizeValue(true));
  command->add_option("--bandwidth", options->gigabytes, "GB/s between the memories (default 1555, an A100 of 40 GB)");
  command->add_option("--rate", options->teraflops, "matrix TFLOP/s (default 312, an A100 in f16)");
  command->add_option("--ledger", options->ledgers, "also print this model's traffic by phase and tensor; repeatable")
      ->check(CLI::IsMember(counted_models()))
      ->allow_extra_args(false);
  command->add_option("--svg", options->svg, "draw traffic against fast memory and against length to this file");
  command->add_option("--json", options->json, "write all counts to this file");
  command->footer("Examples:\n"
                  "  attest io 'dtype=f16 batch=64 heads=16 q=1024 k=1024 dim=64'\n"
                  "  attest io 'dtype=f16 q=8192 k=8192 causal=top-left' --fast-memory 228KiB --svg traffic.svg\n"
                  "  attest io 'dtype=bf16 heads=32/8 q=1 k=65536 dim=128 direction=forward' --ledger split-kv\n"
                  "\nTiles are the largest that fit. Times are floors: bytes / bandwidth or FLOPs / rate, the larger.\n"
                  "\nFields of a case:\n" +
                  case_text_help());
  return [options] { return run_io(*options); };
}

}  // namespace attest::tools

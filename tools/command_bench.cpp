// SPDX-License-Identifier: Apache-2.0
// `attest bench`: times kernels over the grid of the FlashAttention papers, or on stated cases.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "reference/problem/case_text.h"
#include "reference/problem/dtype.h"
#include "reference/problem/invalid_request.h"
#include "reference/problem/layout.h"
#include "tools/bench_call.h"
#include "tools/builtin.h"
#include "tools/commands.h"

namespace attest::tools {
namespace {

constexpr std::size_t kFlushBytes = std::size_t{128} << 20;  // more than the L2 of any device
constexpr double kMostGrowth = 1.25;  // of the bytes a token, from the shortest length to the longest: linear memory

struct Options {
  std::vector<std::string> kernels;
  std::vector<std::string> cases;
  std::string dtype = "bf16";
  std::vector<std::int64_t> dims = {64, 128, 256};
  std::vector<std::int64_t> lengths = {512, 1024, 2048, 4096, 8192, 16384};
  std::int64_t tokens = 16384;
  std::int64_t hidden = 2048;
  std::string causal = "both";
  std::string direction = "both";
  int runs = 10;
  int warm_up = 3;
  std::string json;
};

struct Timing {
  double median_ms = 0;
  double spread = 0;  // (90% - 10%) / median
};

/// Operations of the forward by the papers' count: 2 (D + Dv) a pair, half of the pairs under a causal mask of equal
/// lengths; the backward counts 2.5 times that (five products for two).
double forward_flops(const Problem& p) {
  double pairs = 0;
  for (std::int64_t b = 0; b < p.batch(); ++b) {
    const std::int64_t sq = p.seq_q[static_cast<std::size_t>(b)], sk = p.seq_k[static_cast<std::size_t>(b)];
    if (p.causal == Causal::none || sq == sk) {
      pairs += static_cast<double>(sq) * static_cast<double>(sk) / (p.causal == Causal::none ? 1 : 2);
      continue;
    }
    const std::int64_t shift = p.causal == Causal::bottom_right ? sk - sq : 0;
    for (std::int64_t i = 0; i < sq; ++i) pairs += static_cast<double>(std::clamp<std::int64_t>(i + shift + 1, 0, sk));
  }
  return 2.0 * static_cast<double>((p.dim + p.width_v()) * p.heads_q) * pairs;
}

/// Bytes that must cross the memory at the least: inputs read once, outputs written once.
double least_bytes(const Problem& p, bool backward) {
  const double q = static_cast<double>(p.total_q() * p.heads_q);
  const double k = static_cast<double>(p.total_k() * p.heads_kv);
  const double in = format_of(p.dtype).bytes, out = format_of(p.output_dtype()).bytes;
  const double dim = static_cast<double>(p.dim), dim_v = static_cast<double>(p.width_v());
  const double lse = q * format_of(p.lse_dtype()).bytes;
  if (!backward) return in * (q * dim + k * (dim + dim_v)) + out * q * dim_v + lse;
  return in * (q * (dim + dim_v) + k * (dim + dim_v)) + out * (q * dim_v + q * dim + k * (dim + dim_v)) + lse;
}

Timing time_runs(const Options& options, DeviceMemory& memory, const DeviceBuffer& flush,
                 const std::function<void()>& enqueue) {
  std::vector<double> times;
  for (int i = -options.warm_up; i < options.runs; ++i) {
    memory.fill(flush.data(), 0, flush.bytes());
    const double ms = memory.time_ms(enqueue);
    if (i >= 0) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  return {median, (times[times.size() * 9 / 10] - times[times.size() / 10]) / median};
}

void add_timing(nlohmann::json& row, const std::string& name, const Timing& timing, double flops, double bytes,
                const DeviceRates& rates) {
  const double seconds = timing.median_ms / 1e3;
  row[name + "_ms"] = timing.median_ms;
  row[name + "_spread"] = timing.spread;
  row[name + "_tflops"] = flops / seconds / 1e12;
  row[name + "_gbytes_per_s"] = bytes / seconds / 1e9;
  if (rates.matrix_flops > 0) row[name + "_share_of_peak_flops"] = flops / seconds / rates.matrix_flops;
  if (rates.bytes > 0) row[name + "_share_of_peak_bytes"] = bytes / seconds / rates.bytes;
}

nlohmann::json time_case(const Options& options, const Kernel& kernel, const Problem& problem, DeviceMemory& memory,
                         const DeviceBuffer& flush) {
  const std::size_t before = memory.used_bytes().value_or(0);
  BenchCall call(problem, kernel, memory);
  const std::size_t placed = memory.used_bytes().value_or(0);
  const DeviceRates rates = memory.rates();
  const double flops = forward_flops(problem);
  nlohmann::json row = {{"kernel", kernel.name()},
                        {"device", memory.name()},
                        {"case", print_case(problem)},
                        {"dtype", name_of(problem.dtype)},
                        {"dim", problem.dim},
                        {"length", problem.max_k()},
                        {"causal", problem.causal != Causal::none},
                        {"tokens", problem.total_q() + problem.total_k()},
                        {"runs", options.runs},
                        {"tensor_bytes", call.tensor_bytes()},
                        {"workspace_bytes", call.workspace_bytes()}};
  const auto forward = [&call] { call.enqueue(ATTEST_FORWARD); };
  const auto backward = [&call] { call.enqueue(ATTEST_BACKWARD); };
  if (problem.wants_forward() || problem.wants_backward()) forward();  // the backward needs its O and LSE
  memory.synchronize("bench");
  if (problem.wants_forward()) {
    add_timing(row, "forward", time_runs(options, memory, flush, forward), flops, least_bytes(problem, false), rates);
  }
  if (problem.wants_backward()) {
    add_timing(row, "backward", time_runs(options, memory, flush, backward), 2.5 * flops, least_bytes(problem, true),
               rates);
  }
  if (problem.direction == Direction::both) {
    const auto both = [&] { forward(), backward(); };
    add_timing(row, "both", time_runs(options, memory, flush, both), 3.5 * flops,
               least_bytes(problem, false) + least_bytes(problem, true), rates);
  }
  // What the kernel itself has allocated and kept beside its workspace; the harness's own buffers are known.
  const std::size_t after = memory.used_bytes().value_or(0);
  const std::size_t own = after > placed ? after - placed : 0;
  row["kernel_allocated_bytes"] = own;
  row["peak_bytes"] = call.tensor_bytes() + call.workspace_bytes() + own;
  row["device_used_bytes"] = placed > before ? placed - before : 0;
  return row;
}

std::vector<Problem> problems_of(const Options& options) {
  std::vector<Problem> problems;
  for (const std::string& text : options.cases) problems.push_back(parse_case(text));
  if (!problems.empty()) return problems;
  const std::optional<Dtype> dtype = dtype_from_name(options.dtype);
  if (!dtype) throw InvalidRequest("dtype", fmt::format("'{}'", options.dtype), "f64 f32 f16 bf16 f8e4m3 or f8e5m2");
  for (const std::int64_t dim : options.dims) {
    for (const std::int64_t length : options.lengths) {
      if (dim < 1) throw InvalidRequest("dims", fmt::format("{}", dim), "at least 1");
      if (length < 1) throw InvalidRequest("lengths", fmt::format("{}", length), "at least 1");
      for (const bool causal : {false, true}) {
        if (options.causal != "both" && (options.causal == "yes") != causal) continue;
        Problem p;
        p.dtype = *dtype;
        const auto batch = static_cast<std::size_t>(std::max<std::int64_t>(1, options.tokens / length));
        p.seq_q.assign(batch, length);
        p.seq_k.assign(batch, length);
        p.heads_q = p.heads_kv = std::max<std::int64_t>(1, options.hidden / dim);
        p.dim = dim;
        if (causal) p.causal = Causal::bottom_right;
        p.direction = options.direction == "forward" ? Direction::forward : Direction::both;
        validate(p);
        problems.push_back(p);
      }
    }
  }
  return problems;
}

std::string timing_text(const nlohmann::json& row, const std::string& name) {
  if (!row.contains(name + "_ms")) return "";
  const std::string share = name + "_share_of_peak_flops";
  return fmt::format("  {} {:9.3f} ms +-{:2.0f}% {:6.1f} TFLOP/s{}", name, row[name + "_ms"].get<double>(),
                     50 * row[name + "_spread"].get<double>(), row[name + "_tflops"].get<double>(),
                     row.contains(share) ? fmt::format(" {:2.0f}% of peak", 100 * row[share].get<double>()) : "");
}

void print_row(const nlohmann::json& row) {
  fmt::print("{:<16} {:<6} D{:<4} S{:<6} {:<6}{}{}{}  {:.2f} GiB\n", row["kernel"].get<std::string>(),
             row["dtype"].get<std::string>(), row["dim"].get<int>(), row["length"].get<int>(),
             row["causal"].get<bool>() ? "causal" : "full", timing_text(row, "forward"), timing_text(row, "backward"),
             timing_text(row, "both"), row["peak_bytes"].get<double>() / (1 << 30));
  std::fflush(stdout);
}

/// Bytes a token at the longest length over those at the shortest, per kernel, width and mask.
void print_growth(const nlohmann::json& rows) {
  struct Ends {
    std::int64_t shortest = 0, longest = 0;
    double first = 0, last = 0;
  };
  std::map<std::string, Ends> groups;
  for (const nlohmann::json& row : rows) {
    Ends& ends = groups[fmt::format("{} {} D{}", row["kernel"].get<std::string>(), row["dtype"].get<std::string>(),
                                    row["dim"].get<int>())];
    const auto length = row["length"].get<std::int64_t>();
    const double bytes = row["peak_bytes"].get<double>() / row["tokens"].get<double>();
    if (ends.first == 0 || length < ends.shortest) ends.shortest = length, ends.first = bytes;
    if (length >= ends.longest) ends.longest = length, ends.last = bytes;
  }
  for (const auto& [name, ends] : groups) {
    if (ends.longest == ends.shortest) continue;
    const double growth = ends.last / ends.first;
    fmt::print("memory of {}: {:.0f} bytes a token at S {}, {:.0f} at S {}: {}\n", name, ends.first, ends.shortest,
               ends.last, ends.longest,
               growth <= kMostGrowth ? "linear" : fmt::format("grows {:.1f} times, not linear", growth));
  }
}

int run(const Options& options) {
  const std::vector<Problem> problems = problems_of(options);
  std::ofstream file;
  if (!options.json.empty()) {
    file.open(options.json, std::ios::trunc);
    if (!file) throw InvalidRequest("json", fmt::format("'{}'", options.json), "a file that can be written");
  }
  nlohmann::json rows = nlohmann::json::array();
  for (const Kernel& kernel : select_kernels(options.kernels, builtin_kernels())) {
    const std::unique_ptr<DeviceMemory> memory = memory_for(kernel);
    const DeviceBuffer flush(*memory, kernel.on_cuda() ? kFlushBytes : 0);
    for (Problem problem : problems) {
      if (!kernel.has(problem.direction) && kernel.has(Direction::forward)) problem.direction = Direction::forward;
      if (const std::string why = kernel.why_unsupported(problem); !why.empty()) {
        fmt::print("{:<16} {}: declined: {}\n", kernel.name(), print_case(problem), why);
        continue;
      }
      rows.push_back(time_case(options, kernel, problem, *memory, flush));
      print_row(rows.back());
    }
  }
  if (options.cases.empty()) print_growth(rows);
  if (file.is_open()) {
    file << rows.dump(1) << '\n';
    file.close();
    if (!file) throw std::runtime_error("the report could not be written to its end (is the disk full?)");
  }
  if (rows.empty()) fmt::print("nothing ran: no case was supported\n");
  return rows.empty() ? 1 : 0;
}

}  // namespace

Run add_bench(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("bench", "Time kernels: TFLOP/s by the papers' count, bytes, share of peak, memory");
  command->add_option("--kernel", options->kernels, "a built-in kernel's name, or PATH.so[:NAME]; repeatable")
      ->allow_extra_args(false)
      ->required();
  command->add_option("--case", options->cases, "a case in case text, instead of the grid; repeatable")->allow_extra_args(false);
  command->add_option("--dtype", options->dtype, "type of the grid (default bf16)");
  command->add_option("--dims", options->dims, "widths of the grid (default 64,128,256)")->delimiter(',');
  command->add_option("--lengths", options->lengths, "lengths of the grid (default 512 to 16384)")->delimiter(',');
  command->add_option("--tokens", options->tokens, "tokens of the batch (default 16384)")->check(CLI::PositiveNumber);
  command->add_option("--hidden", options->hidden, "heads times width (default 2048)")->check(CLI::PositiveNumber);
  command->add_option("--causal", options->causal, "yes, no or both (default)")->check(CLI::IsMember({"yes", "no", "both"}));
  command->add_option("--direction", options->direction, "forward, or both (default)")->check(CLI::IsMember({"forward", "both"}));
  command->add_option("--runs", options->runs, "timed runs of each (default 10); the median is given")->check(CLI::PositiveNumber);
  command->add_option("--warm-up", options->warm_up, "runs before them (default 3)")->check(CLI::NonNegativeNumber);
  command->add_option("--json", options->json, "write an array with one object a case to this file");
  command->footer("Operations: 2 (D + Dv) a pair of the forward, half of the pairs under a causal mask, 2.5 times that\n"
                  "backward. Between runs of a device the L2 cache is overwritten; times are the device's events.\n\n"
                  "Examples:\n"
                  "  attest bench --kernel cuda-flash --dims 64,128 --json flash.json\n"
                  "  attest bench --kernel flash --case 'dtype=f16 q=256 k=256 dim=64 direction=forward'");
  return [options] { return run(*options); };
}

}  // namespace attest::tools

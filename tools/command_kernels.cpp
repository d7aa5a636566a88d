// SPDX-License-Identifier: Apache-2.0
// `attest kernels`: what each kernel declares.
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "reference/verify/kernel.h"
#include "tools/builtin.h"
#include "tools/commands.h"

namespace attest::tools {
namespace {

const char* directions_of(const attest_kernel& table) {
  switch (table.directions) {
    case ATTEST_FORWARD: return "forward";
    case ATTEST_BACKWARD: return "backward";
    default: return "forward, backward";
  }
}

std::string conventions_of(const attest_conventions& c) {
  constexpr const char* rows[] = {"0", "nan", "mean of v"};
  constexpr const char* maps[] = {"attest", "its own", "flash-attention-2", "curand"};
  return fmt::format("empty rows o={} lse={}; lse {} in {}; dropout mapping {}; bitwise repeatable: forward {}, backward {}",
                     rows[c.empty_rows % 3], c.empty_lse == ATTEST_EMPTY_LSE_POS_INF ? "+inf" : "-inf",
                     c.lse_unit == ATTEST_LSE_BASE2 ? "base 2" : "natural",
                     c.lse_layout == ATTEST_LSE_PADDED ? "[B, Hq, max Sq]" : "rows of o", maps[c.dropout_map % 4],
                     c.bitwise_forward != 0 ? "yes" : "no", c.bitwise_backward != 0 ? "yes" : "no");
}

std::string accumulation(const attest_accumulation& a) {
  return fmt::format("blocks of {}, {} bits kept, u {:.3g}{}{}", a.block, a.aligner_bits == 0 ? "all" : std::to_string(a.aligner_bits),
                     a.u_norm, a.truncates != 0 ? ", truncating" : "",
                     a.promote > 0 ? fmt::format(", promoted every {}", a.promote) : "");
}

void print_numerics(const Kernel& kernel, Dtype dtype) {
  Problem problem;
  problem.dtype = dtype;
  problem.direction = kernel.has(Direction::forward) ? Direction::forward : Direction::backward;
  const std::string why = kernel.why_unsupported(problem);
  if (!why.empty()) {
    fmt::print("  {:<7} declined: {}\n", name_of(dtype), why);
    return;
  }
  constexpr const char* types[] = {"f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "tf32"};
  const attest_numerics n = kernel.numerics(problem);
  fmt::print("  {:<7} P in {}{}; QK {}; PV {}; exp {:.2g}, log {:.2g}; tiles {} x {}\n", name_of(dtype),
             types[n.p_dtype % 7], n.p_offset != 0 ? fmt::format(" times 2^{}", n.p_offset) : "", accumulation(n.qk),
             accumulation(n.pv), n.exp_error, n.log_error, n.query_tile, n.key_tile);
}

}  // namespace

Run add_kernels(CLI::App& app) {
  auto requests = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand("kernels", "List kernels: device, directions, conventions and numerics they declare");
  command->add_option("kernel", *requests, "built-in names or libraries PATH.so[:NAME]; default: all that can run here");
  command->footer("Example:\n  attest kernels ./libmine.so");
  return [requests] {
    for (const Kernel& kernel : select_kernels(*requests, builtin_kernels())) {
      fmt::print("{} ({}, {}): {}\n", kernel.name(), kernel.on_cuda() ? "cuda" : "cpu", directions_of(kernel.table()), kernel.description());
      fmt::print("  {}\n", conventions_of(kernel.table().conventions));
      for (const Dtype dtype : kDtypes) print_numerics(kernel, dtype);
    }
    if (const std::string why = why_no_cuda(); requests->empty() && !why.empty()) fmt::print("no CUDA kernels: {}\n", why);
    return 0;
  };
}

}  // namespace attest::tools

// SPDX-License-Identifier: Apache-2.0
// Cases per second of the whole pipeline: inputs, exact oracle, bounds, the kernel, the judge.
#include <cstdint>

#include <benchmark/benchmark.h>

#include "reference/models/builtin_kernels.h"
#include "reference/problem/device_memory.h"
#include "reference/verify/check.h"
#include "reference/verify/generate.h"

namespace attest {
namespace {

/// `attest verify --kernel flash` on the default random mix, all directions; items per second are cases per second.
void verify_flash(benchmark::State& state) {
  const attest_kernel* flash = nullptr;
  for (const attest_kernel* table : builtin_cpu_kernels()) {
    if (std::string(table->name) == "flash") flash = table;
  }
  const Kernel kernel(flash);
  const auto memory = make_host_memory();
  const CaseSpace space;
  std::uint64_t index = 0;
  std::int64_t failed = 0;
  for (auto _ : state) {
    const Verdict verdict = check(kernel, random_case(space, 1, index++), *memory);
    failed += verdict.state != State::pass;
  }
  state.SetItemsProcessed(state.iterations());
  state.counters["failed"] = static_cast<double>(failed);
}
BENCHMARK(verify_flash)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(500);

}  // namespace
}  // namespace attest

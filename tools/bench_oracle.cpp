// SPDX-License-Identifier: Apache-2.0
// Speed of the exact oracle as a share of Eigen's own dgemm rate, both measured in this run on the same threads with the
// same compiler flags.
//
//   attest_bench --benchmark_min_time=1
#include <benchmark/benchmark.h>
#include <omp.h>

#include <Eigen/Core>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <random>

#include "reference/oracle/bound.h"
#include "reference/oracle/exact.h"
#include "tests/support/peak_memory.h"

namespace attest {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
constexpr std::int64_t kGemmSize = 2048;

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Of all threads: what other processes do does not count.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// One product of 2048 x 2048 matrices, its columns split over the threads; returns operations per second.
double gemm_rate() {
  static const Matrix a = Matrix::Random(kGemmSize, kGemmSize), b = Matrix::Random(kGemmSize, kGemmSize);
  static Matrix c(kGemmSize, kGemmSize);
  const double begin = seconds();
#pragma omp parallel
  {
    const std::int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    const std::int64_t first = kGemmSize * thread / threads, last = kGemmSize * (thread + 1) / threads;
    c.middleRows(first, last - first).noalias() = a.middleRows(first, last - first) * b;
  }
  benchmark::DoNotOptimize(c.data());
  return 2.0 * kGemmSize * kGemmSize * kGemmSize / (seconds() - begin);
}

Problem make_problem(std::int64_t seq, std::int64_t heads, std::int64_t dim, Direction direction) {
  Problem problem;
  problem.dtype = Dtype::f16;
  problem.seq_q = problem.seq_k = {seq};
  problem.heads_q = problem.heads_kv = heads;
  problem.dim = dim;
  problem.direction = direction;
  return problem;
}

double matmul_flops(const Problem& problem) {
  const double matmuls = problem.wants_backward() ? 7 : 2;
  return matmuls * 2 * static_cast<double>(problem.seq_q[0] * problem.seq_k[0] * problem.dim * problem.heads_q);
}

// Args: S, heads, D, direction. The gemm runs in turn with the oracle, so that both see the same machine.
void exact(benchmark::State& state) {
  const Problem problem =
      make_problem(state.range(0), state.range(1), state.range(2), static_cast<Direction>(state.range(3)));
  const Inputs inputs = make_inputs(problem);
  double oracle_seconds = 0, gemm = 0;
  for (auto _ : state) {
    const double begin = seconds();
    benchmark::DoNotOptimize(exact_attention(problem, inputs));
    const double spent = seconds() - begin;
    state.SetIterationTime(spent);
    oracle_seconds += spent;
    if (state.range(0) >= 1024) gemm += gemm_rate();
  }
  const double runs = static_cast<double>(state.iterations());
  const double rate = matmul_flops(problem) * runs / oracle_seconds;
  state.counters["gflops"] = rate * 1e-9;
  if (gemm > 0) state.counters["of_gemm"] = rate / (gemm / runs);
}
BENCHMARK(exact)
    ->ArgNames({"S", "H", "D", "direction"})
    ->Args({64, 2, 64, static_cast<int>(Direction::both)})
    ->Args({2048, 4, 64, static_cast<int>(Direction::forward)})
    ->Args({2048, 4, 64, static_cast<int>(Direction::both)})
    ->Args({2048, 4, 128, static_cast<int>(Direction::both)})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

// The oracle alone and with the bounds, in turn: `ratio` is what both cost over the oracle, in CPU time of all threads. Args: S, heads, D, det.
void bounds(benchmark::State& state) {
  const Problem problem = make_problem(state.range(0), state.range(1), state.range(2), Direction::both);
  const Inputs inputs = make_inputs(problem);
  const NumericsProfile profile = make_profile(numerics_preset("hopper-f16"), problem);
  const BoundMode mode = state.range(3) != 0 ? BoundMode::det : BoundMode::gen;
  double oracle = 0, both = 0;
  for (auto _ : state) {
    const double begin = cpu_seconds();
    benchmark::DoNotOptimize(exact_attention(problem, inputs));
    const double middle = cpu_seconds();
    benchmark::DoNotOptimize(exact_attention_with_bounds(problem, inputs, profile, mode));
    const double spent = cpu_seconds() - middle;
    state.SetIterationTime(spent);
    oracle += middle - begin;
    both += spent;
  }
  state.counters["ratio"] = both / oracle;
}
BENCHMARK(bounds)
    ->ArgNames({"S", "H", "D", "det"})
    ->Args({2048, 2, 64, 0})
    ->Args({2048, 2, 128, 0})
    ->Args({2048, 2, 256, 0})
    ->Args({2048, 2, 128, 1})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

// Peak of resident memory above the results of the oracle with its bounds, in MiB. Args: S, D.
void bounds_memory(benchmark::State& state) {
  const Problem problem = make_problem(state.range(0), 1, state.range(1), Direction::both);
  const Inputs inputs = make_inputs(problem);
  const NumericsProfile profile = make_profile(numerics_preset("hopper-f16"), problem);
  const double outputs = 2 * 8.0 * static_cast<double>(state.range(0) * (4 * state.range(1) + 1));
  for (auto _ : state) {
    const std::int64_t peak = peak_memory_of(
        [&] { benchmark::DoNotOptimize(exact_attention_with_bounds(problem, inputs, profile, BoundMode::gen)); });
    state.counters["extra_mib"] = (static_cast<double>(peak) - outputs) / 1048576;
  }
}
BENCHMARK(bounds_memory)->ArgNames({"S", "D"})->Args({4096, 64})->Args({8192, 64})->Iterations(1)->Unit(benchmark::kSecond);

// Peak of resident memory above the outputs, in MiB. Args: S, D.
void exact_memory(benchmark::State& state) {
  const Problem problem = make_problem(state.range(0), 1, state.range(1), Direction::both);
  const Inputs inputs = make_inputs(problem);
  const double outputs = 8.0 * static_cast<double>(state.range(0) * (4 * state.range(1) + 1));
  for (auto _ : state) {
    const std::int64_t peak = peak_memory_of([&] { benchmark::DoNotOptimize(exact_attention(problem, inputs)); });
    state.counters["extra_mib"] = (static_cast<double>(peak) - outputs) / 1048576;
  }
}
BENCHMARK(exact_memory)->ArgNames({"S", "D"})->Args({16384, 64})->Iterations(1)->Unit(benchmark::kSecond);

}  // namespace
}  // namespace attest

BENCHMARK_MAIN();

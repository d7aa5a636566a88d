// SPDX-License-Identifier: Apache-2.0
// Speed of the flash model on one core: in f32, where nothing is emulated, as a share of Eigen's own sgemm rate, and
// in f16 and bf16, where P is rounded, as a multiple of its time in f32. All three are measured in turn.
//
//   attest_bench --benchmark_filter=flash_model
#include <benchmark/benchmark.h>

#include <Eigen/Core>
#include <chrono>
#include <cstdint>

#include "reference/models/flash.h"
#include "reference/problem/case_text.h"
#include "tests/support/kernel_call.h"

namespace attest {
namespace {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Operations per second of one product of 1024 x 1024 float matrices.
double sgemm_rate() {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  constexpr std::int64_t kSize = 1024;
  static const Matrix a = Matrix::Random(kSize, kSize), b = Matrix::Random(kSize, kSize);
  static Matrix c(kSize, kSize);
  const double begin = seconds();
  c.noalias() = a * b;
  benchmark::DoNotOptimize(c.data());
  return 2.0 * kSize * kSize * kSize / (seconds() - begin);
}

using Model = void (*)(const attest_call&, const ModelOptions&);

/// One direction of the model on inputs of a type.
class Timed {
 public:
  Timed(const char* type, Model model)
      : problem_(parse_case(std::string("dtype=") + type + " heads=2 q=1024 k=1024 dim=64")),
        call_(problem_, make_inputs(problem_)), options_(default_options(call_.problem())), model_(model) {
    flash_forward(call_.call(), options_);  // the backward reads its o and lse
  }
  double once() {
    const double begin = seconds();
    model_(call_.call(), options_);
    return seconds() - begin;
  }

 private:
  Problem problem_;
  KernelCall call_;
  ModelOptions options_;
  Model model_;
};

/// Counters: gflops, of_sgemm (share of sgemm's rate), over_f32 (time as a multiple of the same model in f32).
void flash_model(benchmark::State& state, const char* type, Model model, double matmuls) {
  Timed timed(type, model), plain("f32", model);
  double spent = 0, plain_spent = 0, sgemm = 0;
  for (auto _ : state) {
    const double once = timed.once();
    state.SetIterationTime(once);
    spent += once;
    plain_spent += plain.once();
    sgemm += sgemm_rate();
  }
  const auto runs = static_cast<double>(state.iterations());
  const double rate = matmuls * 2 * 1024 * 1024 * 64 * 2 * runs / spent;
  state.counters["gflops"] = rate * 1e-9;
  state.counters["of_sgemm"] = rate / (sgemm / runs);
  state.counters["over_f32"] = spent / plain_spent;
}
#define ATTEST_BENCH(name, type, model, matmuls) \
  BENCHMARK_CAPTURE(flash_model, name, type, model, matmuls)->UseManualTime()->Unit(benchmark::kMillisecond)
ATTEST_BENCH(f32_forward, "f32", flash_forward, 2);
ATTEST_BENCH(f16_forward, "f16", flash_forward, 2);
ATTEST_BENCH(bf16_forward, "bf16", flash_forward, 2);
ATTEST_BENCH(f32_backward, "f32", flash_backward, 5);
ATTEST_BENCH(f16_backward, "f16", flash_backward, 5);

}  // namespace
}  // namespace attest

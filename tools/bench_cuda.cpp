// SPDX-License-Identifier: Apache-2.0
// Times the CUDA kernels over the grid of the FlashAttention papers: 16k tokens, hidden width 2048. Rates count
// 4 S^2 D H B operations forward, 2.5 times that backward, half under a causal mask. Medians over runs between which
// the L2 cache is overwritten.
//
//   bench_cuda [--kernel NAME] [--dtype bf16|f16] [--dims 64,128] [--lengths 512,...] [--runs 20] [--json FILE]
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cuda/cuda_kernels.h"
#include "cuda/device_memory.h"
#include "cuda/error.h"
#include "reference/problem/dtype.h"

namespace attest {
namespace {

using cuda::builtin_cuda_kernels;
using cuda::check;
using cuda::cuda_available;
using cuda::make_cuda_memory;

struct BenchCase {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t length = 1;
  std::int64_t dim = 64;
  bool causal = false;
  std::int32_t dtype = ATTEST_BF16;
};

struct Timing {
  double median_ms = 0;
  double spread = 0;  // (90% - 10%) / median
};

/// Buffers and the call of one case, all tensors [B, S, H, D].
class BenchCall {
 public:
  BenchCall(const BenchCase& bench, const attest_kernel& kernel, DeviceMemory& memory)
      : lengths_(static_cast<std::size_t>(bench.batch), bench.length), memory_(memory) {
    problem_.struct_size = sizeof problem_;
    problem_.directions = ATTEST_FORWARD | ATTEST_BACKWARD;
    problem_.dtype = problem_.out_dtype = bench.dtype;
    problem_.lse_dtype = ATTEST_F32;
    problem_.layout = ATTEST_BSHD;
    problem_.batch = bench.batch;
    problem_.seq_q = problem_.seq_k = lengths_.data();
    problem_.max_q = problem_.max_k = problem_.rows_q = problem_.rows_k = bench.length;
    problem_.heads_q = problem_.heads_kv = bench.heads;
    problem_.dim = problem_.dim_v = bench.dim;
    problem_.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(bench.dim)));
    problem_.causal = bench.causal ? ATTEST_CAUSAL_BOTTOM_RIGHT : ATTEST_CAUSAL_NONE;

    const std::size_t elements = static_cast<std::size_t>(bench.batch * bench.length * bench.heads * bench.dim);
    call_.struct_size = sizeof call_;
    call_.problem = &problem_;
    const auto random = random_elements(bench.dtype, elements);
    for (attest_tensor* tensor :
         {&call_.q, &call_.k, &call_.v, &call_.d_o, &call_.o, &call_.dq, &call_.dk, &call_.dv}) {
      tensor->data = allocate(elements * 2);
      tensor->stride_head = bench.dim;
      tensor->stride_seq = bench.heads * bench.dim;
      tensor->stride_batch = bench.length * bench.heads * bench.dim;
    }
    std::size_t shift = 0;  // the inputs differ by a rotation of one random block
    for (attest_tensor* tensor : {&call_.q, &call_.k, &call_.v, &call_.d_o}) {
      memory_.upload(tensor->data, random.data() + shift, elements * 2);
      shift += 1237;
    }
    call_.lse = {allocate(static_cast<std::size_t>(bench.batch * bench.heads * bench.length) * 4),
                 bench.heads * bench.length, 1, bench.length};
    const std::vector<std::int32_t> lengths(lengths_.size(), static_cast<std::int32_t>(bench.length));
    void* const device_lengths = allocate(lengths.size() * 4);
    memory_.upload(device_lengths, lengths.data(), lengths.size() * 4);
    call_.seq_q = call_.seq_k = static_cast<const std::int32_t*>(device_lengths);
    call_.workspace_bytes =
        std::max(kernel.workspace_bytes(&problem_, ATTEST_FORWARD), kernel.workspace_bytes(&problem_, ATTEST_BACKWARD));
    call_.workspace = allocate(call_.workspace_bytes);
    call_.stream = memory_.stream();
    call_.message = message_;
    call_.message_bytes = sizeof message_;
  }

  const attest_call& call() const { return call_; }
  const char* message() const { return message_; }
  std::size_t bytes() const { return bytes_; }

 private:
  static std::vector<std::uint16_t> random_elements(std::int32_t dtype, std::size_t count) {
    std::mt19937 engine(1);
    std::normal_distribution<float> normal;
    std::vector<std::uint16_t> block(1 << 20);
    const Dtype type = dtype == ATTEST_F16 ? Dtype::f16 : Dtype::bf16;
    for (auto& element : block) element = static_cast<std::uint16_t>(encode(type, normal(engine)));
    std::vector<std::uint16_t> all(count + 4 * 1237);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = block[(i * 7) % block.size()];
    return all;
  }
  void* allocate(std::size_t bytes) {
    bytes_ += bytes;
    buffers_.emplace_back(memory_, bytes);
    return buffers_.back().data();
  }

  std::vector<std::int64_t> lengths_;  // [B]
  DeviceMemory& memory_;
  std::vector<DeviceBuffer> buffers_;
  attest_problem problem_{};
  attest_call call_{};
  char message_[256] = {};
  std::size_t bytes_ = 0;
};

Timing time_runs(int runs, DeviceMemory& memory, DeviceBuffer& flush, const std::function<std::int32_t()>& run,
                 const char* message) {
  auto* const stream = static_cast<cudaStream_t>(memory.stream());
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<double> times;
  for (int i = -3; i < runs; ++i) {
    memory.fill(flush.data(), 0, flush.bytes());
    check(cudaEventRecord(begin, stream), "cudaEventRecord");
    if (run() != ATTEST_OK) throw DeviceError("kernel", message);
    check(cudaEventRecord(end, stream), "cudaEventRecord");
    memory.synchronize("bench");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    if (i >= 0) times.push_back(ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  return {median, (times[times.size() * 9 / 10] - times[times.size() / 10]) / median};
}

nlohmann::json run_case(const BenchCase& bench, const attest_kernel& kernel, DeviceMemory& memory, DeviceBuffer& flush,
                        int runs) {
  const BenchCall call(bench, kernel, memory);
  const double flops = 4.0 * static_cast<double>(bench.length) * static_cast<double>(bench.length) *
                       static_cast<double>(bench.dim * bench.heads * bench.batch) / (bench.causal ? 2 : 1);
  const Timing forward = time_runs(
      runs, memory, flush, [&] { return kernel.forward(&call.call()); }, call.message());
  nlohmann::json row = {{"kernel", kernel.name},
                        {"dtype", bench.dtype == ATTEST_F16 ? "f16" : "bf16"},
                        {"batch", bench.batch},
                        {"heads", bench.heads},
                        {"length", bench.length},
                        {"dim", bench.dim},
                        {"causal", bench.causal},
                        {"bytes", call.bytes()},
                        {"forward_ms", forward.median_ms},
                        {"forward_spread", forward.spread},
                        {"forward_tflops", flops / forward.median_ms / 1e9}};
  if ((kernel.directions & ATTEST_BACKWARD) != 0) {
    const Timing backward = time_runs(
        runs, memory, flush, [&] { return kernel.backward(&call.call()); }, call.message());
    row["backward_ms"] = backward.median_ms;
    row["backward_spread"] = backward.spread;
    row["backward_tflops"] = 2.5 * flops / backward.median_ms / 1e9;
  }
  return row;
}

void print_row(const nlohmann::json& row) {
  std::printf("%-16s %-5s D%-4d S%-6d %-7s forward %8.3f ms %6.1f TFLOP/s", row["kernel"].get<std::string>().c_str(),
              row["dtype"].get<std::string>().c_str(), row["dim"].get<int>(), row["length"].get<int>(),
              row["causal"].get<bool>() ? "causal" : "full", row["forward_ms"].get<double>(),
              row["forward_tflops"].get<double>());
  if (row.contains("backward_ms")) {
    std::printf("  backward %8.3f ms %6.1f TFLOP/s", row["backward_ms"].get<double>(),
                row["backward_tflops"].get<double>());
  }
  std::printf("  %.2f GiB\n", row["bytes"].get<double>() / (1 << 30));
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  std::string kernel_name = "cuda-flash", dtype = "bf16", json_path;
  std::vector<std::int64_t> dims = {64, 128}, lengths = {512, 1024, 2048, 4096, 8192, 16384};
  int runs = 20;
  CLI::App app("Times the CUDA kernels");
  app.add_option("--kernel", kernel_name, "name of a built-in CUDA kernel");
  app.add_option("--dtype", dtype, "f16 or bf16");
  app.add_option("--dims", dims, "widths")->delimiter(',');
  app.add_option("--lengths", lengths, "sequence lengths")->delimiter(',');
  app.add_option("--runs", runs, "timed runs of each");
  app.add_option("--json", json_path, "file for the rows as JSON");
  CLI11_PARSE(app, argc, argv);

  std::string why_not;
  if (!cuda_available(&why_not)) {
    std::fprintf(stderr, "no usable GPU: %s\n", why_not.c_str());
    return 2;
  }
  const auto memory = make_cuda_memory();
  DeviceBuffer flush(*memory, std::size_t{128} << 20);
  std::printf("%s\n", memory->name().c_str());
  nlohmann::json rows = nlohmann::json::array();
  for (const attest_kernel* kernel : builtin_cuda_kernels()) {
    if (kernel_name != kernel->name) continue;
    for (const std::int64_t dim : dims) {
      for (const std::int64_t length : lengths) {
        for (const bool causal : {false, true}) {
          const BenchCase bench = {
              std::max<std::int64_t>(1, 16384 / length), std::max<std::int64_t>(1, 2048 / dim), length, dim, causal,
              dtype == "f16" ? ATTEST_F16 : ATTEST_BF16};
          rows.push_back(run_case(bench, *kernel, *memory, flush, runs));
          print_row(rows.back());
        }
      }
    }
  }
  if (rows.empty()) {
    std::fprintf(stderr, "no kernel named %s\n", kernel_name.c_str());
    return 2;
  }
  if (!json_path.empty()) {
    std::FILE* const file = std::fopen(json_path.c_str(), "w");
    if (file == nullptr) return 2;
    std::fprintf(file, "%s\n", rows.dump(1).c_str());
    std::fclose(file);
  }
  return 0;
}

}  // namespace
}  // namespace attest

int main(int argc, char** argv) {
  try {
    return attest::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}

// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels on a device: random and boundary cases, refused calls, reruns under load, streams, memory. Without a
// device every test is skipped; with ATTEST_REQUIRE_GPU=1 it fails instead.
#include <gtest/gtest.h>

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <thread>

#include "cuda/cuda_kernels.h"
#include "cuda/device_memory.h"
#include "reference/problem/case_text.h"
#include "reference/problem/inputs.h"
#include "reference/problem/layout.h"
#include "reference/verify/check.h"
#include "reference/verify/corpus.h"
#include "reference/verify/generate.h"
#include "reference/verify/placement.h"
#include "reference/verify/report.h"

namespace attest {
namespace {

constexpr std::uint64_t kSeed = 20;
constexpr int kRandomCases = 60;
constexpr int kReruns = 100;
constexpr int kAttempts = 20;

bool gpu_is_required() {
  const char* const value = std::getenv("ATTEST_REQUIRE_GPU");
  return value != nullptr && std::string(value) == "1";
}

const attest_kernel* table_of(const std::string& name) {
  for (const attest_kernel* table : cuda::builtin_cuda_kernels()) {
    if (name == table->name) return table;
  }
  throw std::logic_error("no kernel " + name);
}

class CudaKernels : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::string why;
    if (cuda::cuda_available(&why)) {
      memory_ = cuda::make_cuda_memory();
      return;
    }
    if (gpu_is_required()) FAIL() << "ATTEST_REQUIRE_GPU=1, but " << why;
    GTEST_SKIP() << why;
  }

  Kernel kernel() const { return Kernel(table_of(GetParam())); }
  bool has_backward() const { return (kernel().table().directions & ATTEST_BACKWARD) != 0; }

  std::unique_ptr<DeviceMemory> memory_;
};

std::string test_name(const testing::TestParamInfo<const char*>& info) {
  std::string name;
  for (const char* c = info.param; *c != '\0'; ++c) {
    if (*c != '-') name += *c;
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, CudaKernels,
                         testing::Values("cuda-standard", "cuda-flash-f32", "cuda-flash", "cuda-flash-split"), test_name);

TEST_P(CudaKernels, PassRandomCases) {
  CaseSpace space;
  space.direction = has_backward() ? Direction::both : Direction::forward;
  int ran = 0;
  for (std::uint64_t index = 0; ran < kRandomCases; ++index) {
    ASSERT_LT(index, 50U * kRandomCases) << "nearly all cases are declined";
    const Verdict verdict = check(kernel(), random_case(space, kSeed, index), *memory_);
    if (verdict.state == State::unsupported) continue;
    ++ran;
    EXPECT_EQ(verdict.state, State::pass) << describe(verdict);
  }
}

TEST_P(CudaKernels, PassTheBoundaryCorpus) {
  int ran = 0;
  for (Problem problem : read_corpus(ATTEST_SOURCE_DIR "/tests/corpora/cuda_boundaries.txt")) {
    if (!has_backward() && problem.direction == Direction::both) {
      problem.direction = Direction::forward;
      problem.d_lse = problem.d_bias = false;
    }
    const Verdict verdict = check(kernel(), problem, *memory_);
    EXPECT_EQ(verdict.state, State::pass) << describe(verdict);
    ++ran;
  }
  EXPECT_GT(ran, 100);
}

/// One call over placed buffers, whose problem can be changed.
struct PlacedCall {
  PlacedCall(const Problem& source, const attest_kernel& table, DeviceMemory& memory)
      : problem(source), inputs(make_inputs(problem)), placement(problem, inputs, table.conventions, memory),
        abi(*placement.problem()) {}

  attest_call call(std::int32_t direction, std::size_t workspace_bytes) {
    attest_call made = placement.call(direction, workspace_bytes);
    made.problem = &abi;
    made.message = message;
    made.message_bytes = sizeof message;
    return made;
  }

  Problem problem;
  Inputs inputs;
  Placement placement;
  attest_problem abi;
  char message[256] = {};
};

struct InvalidChange {
  const char* what;
  std::function<void(attest_problem&)> apply;
};

const InvalidChange kInvalidChanges[] = {
    {"heads not a multiple", [](attest_problem& p) { p.heads_q = 3, p.heads_kv = 2; }},
    {"no key/value heads", [](attest_problem& p) { p.heads_kv = 0; }},
    {"no sequences", [](attest_problem& p) { p.batch = 0; }},
    {"a negative length, as of falling offsets",
     [](attest_problem& p) {
       static const std::int64_t lengths[] = {5, -1};
       p.seq_k = lengths;
     }},
    {"a max length below a real one", [](attest_problem& p) { p.max_k -= 1; }},
    {"offsets past the end of the tensor", [](attest_problem& p) { p.rows_q -= 1; }},
    {"p = 1", [](attest_problem& p) { p.has_dropout = 1, p.dropout_p = 1; }},
    {"p below 0", [](attest_problem& p) { p.has_dropout = 1, p.dropout_p = -0.5; }},
    {"p NaN", [](attest_problem& p) { p.has_dropout = 1, p.dropout_p = std::nan(""); }},
    {"float64", [](attest_problem& p) { p.dtype = ATTEST_F64; }},
    {"an unknown type", [](attest_problem& p) { p.dtype = 17; }},
    {"output of float64", [](attest_problem& p) { p.out_dtype = ATTEST_F64; }},
    {"a bias of float64", [](attest_problem& p) { p.has_bias = 1, p.bias_dtype = ATTEST_F64; }},
    {"width 0", [](attest_problem& p) { p.dim = 0; }},
    {"an unknown layout", [](attest_problem& p) { p.layout = 3; }},
    {"an infinite scale", [](attest_problem& p) { p.scale = std::numeric_limits<double>::infinity(); }},
    {"a negative softcap", [](attest_problem& p) { p.softcap = -1; }},
    {"a softcap of NaN", [](attest_problem& p) { p.softcap = std::nan(""); }},
    {"empty tiles of a block mask", [](attest_problem& p) { p.has_block_mask = 1, p.block_rows = 0; }},
    {"a negative page size", [](attest_problem& p) { p.page_size = -1; }},
    {"pages with a backward", [](attest_problem& p) { p.page_size = 16, p.directions |= ATTEST_BACKWARD; }},
};

TEST_P(CudaKernels, RefuseInvalidCallsBeforeAnythingIsWritten) {
  const attest_kernel& table = *table_of(GetParam());
  const Problem problem = parse_case("dtype=f16 layout=thd q=3,4 k=5,6 heads=4/2 direction=forward");
  for (const InvalidChange& change : kInvalidChanges) {
    PlacedCall placed(problem, table, *memory_);
    change.apply(placed.abi);
    const attest_call call = placed.call(ATTEST_FORWARD, 1 << 16);
    EXPECT_EQ(table.forward(&call), ATTEST_REFUSED) << change.what;
    EXPECT_NE(placed.message[0], '\0') << change.what;
    memory_->synchronize(change.what);
    EXPECT_FALSE(placed.placement.wrote_results(ATTEST_FORWARD)) << change.what;
    if (!has_backward()) continue;
    const attest_call backward = placed.call(ATTEST_BACKWARD, 1 << 16);
    EXPECT_EQ(table.backward(&backward), ATTEST_REFUSED) << change.what;
  }
}

TEST_P(CudaKernels, RefuseWidthsPastTheirOwn) {
  const AbiProblem widest(parse_case("dtype=f16 dim=256 direction=forward"));
  const AbiProblem wide(parse_case("dtype=f16 dim=513 direction=forward"));
  char reason[128] = "";
  EXPECT_EQ(table_of(GetParam())->supports(widest.get(), reason, sizeof reason), 1) << reason;
  const bool any_width = std::string(GetParam()) == "cuda-standard";
  EXPECT_EQ(table_of(GetParam())->supports(wide.get(), reason, sizeof reason), any_width ? 1 : 0);
  EXPECT_EQ(reason[0] == '\0', any_width);
}

/// Keeps the device busy on a stream of its own until it goes.
class Load {
 public:
  Load() : thread_([this] { run(); }) {}
  ~Load() {
    stop_ = true;
    thread_.join();
  }

 private:
  void run() {
    const auto memory = cuda::make_cuda_memory();
    const DeviceBuffer buffer(*memory, std::size_t{64} << 20);
    std::uint8_t pattern = 0;
    while (!stop_) {
      for (int i = 0; i < 8; ++i) memory->fill(buffer.data(), pattern++, buffer.bytes());
      memory->synchronize("load");
    }
  }

  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

void expect_equal(const Outputs& got, const Outputs& want) {
  EXPECT_EQ(got.o.data, want.o.data);
  EXPECT_EQ(got.lse, want.lse);
  EXPECT_EQ(got.dq.data, want.dq.data);
  EXPECT_EQ(got.dk.data, want.dk.data);
  EXPECT_EQ(got.dv.data, want.dv.data);
}

TEST_P(CudaKernels, GiveTheSameBitsUnderLoad) {
  const attest_kernel& table = *table_of(GetParam());
  for (const char* text : {"dtype=bf16 batch=2 q=300 k=420 heads=4/2 causal=bottom-right",
                           "dtype=f16 q=40 k=900 heads=6/2 dim=128 dropout=0.2@3"}) {
    Problem problem = parse_case(text);
    if (!has_backward()) problem.direction = Direction::forward;
    PlacedCall placed(problem, table, *memory_);
    placed.abi.deterministic = 1;
    std::vector<Finding> findings;
    for (const std::int32_t direction : {ATTEST_FORWARD, ATTEST_BACKWARD}) {
      if (direction == ATTEST_BACKWARD && !has_backward()) continue;
      const std::size_t workspace =
          table.workspace_bytes == nullptr ? 0 : table.workspace_bytes(&placed.abi, direction);
      const attest_call call = placed.call(direction, workspace);
      Outputs first;
      const Load load;
      for (int run = 0; run < kReruns && !HasFailure(); ++run) {
        ASSERT_EQ(direction == ATTEST_FORWARD ? table.forward(&call) : table.backward(&call), ATTEST_OK)
            << placed.message;
        memory_->synchronize(text);
        Outputs outputs;
        placed.placement.read_outputs(direction, outputs, findings);
        if (run == 0) first = outputs;
        expect_equal(outputs, first);
      }
    }
    EXPECT_TRUE(findings.empty());
  }
}

void CUDART_CB sleep_50ms(void*) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }

TEST_P(CudaKernels, WaitForTheirInputsOnTheStreamOfTheCall) {
  const attest_kernel& table = *table_of(GetParam());
  const Problem problem = parse_case("dtype=f16 q=70 k=90 heads=2 direction=forward");
  PlacedCall placed(problem, table, *memory_);
  const std::size_t workspace = table.workspace_bytes(&placed.abi, ATTEST_FORWARD);
  const attest_call call = placed.call(ATTEST_FORWARD, workspace);
  std::vector<Finding> findings;
  ASSERT_EQ(table.forward(&call), ATTEST_OK) << placed.message;
  Outputs want, got;
  placed.placement.read_outputs(ATTEST_FORWARD, want, findings);

  // Q is wiped and comes back late, on the stream that the call names.
  const std::size_t q_bytes = static_cast<std::size_t>(storage_elements(problem, TensorId::q)) * 2;
  const DeviceBuffer copy(*memory_, q_bytes);
  auto* const stream = static_cast<cudaStream_t>(memory_->stream());
  ASSERT_EQ(cudaMemcpyAsync(copy.data(), call.q.data, q_bytes, cudaMemcpyDeviceToDevice, stream), cudaSuccess);
  memory_->fill(call.q.data, 0, q_bytes);
  memory_->synchronize();
  ASSERT_EQ(cudaLaunchHostFunc(stream, sleep_50ms, nullptr), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(call.q.data, copy.data(), q_bytes, cudaMemcpyDeviceToDevice, stream), cudaSuccess);
  ASSERT_EQ(table.forward(&call), ATTEST_OK) << placed.message;
  memory_->synchronize();
  placed.placement.read_outputs(ATTEST_FORWARD, got, findings);
  expect_equal(got, want);
  EXPECT_TRUE(findings.empty());
}

TEST_P(CudaKernels, TakeMemoryThatGrowsWithTheTokens) {
  const attest_kernel& table = *table_of(GetParam());
  const auto workspace = [&](std::int64_t length, std::int32_t direction) {
    Problem problem;
    problem.dtype = Dtype::bf16;
    problem.heads_q = problem.heads_kv = 8;
    problem.seq_q = problem.seq_k = {length};
    problem.direction = direction == ATTEST_FORWARD ? Direction::forward : Direction::both;
    const AbiProblem abi(problem);
    return static_cast<double>(table.workspace_bytes(abi.get(), direction));
  };
  const bool materialised = std::string(GetParam()) == "cuda-standard";
  constexpr std::int64_t kShort = 8192, kLong = 131072;
  constexpr double kBytesOfATensor = 131072.0 * 8 * 64 * 2;
  for (const std::int32_t direction : {ATTEST_FORWARD, ATTEST_BACKWARD}) {
    if (direction == ATTEST_BACKWARD && !has_backward()) continue;
    if (materialised) {
      EXPECT_GT(workspace(kLong, direction), 200 * workspace(kShort, direction));
    } else {
      EXPECT_LE(workspace(kLong, direction), 16.1 * workspace(kShort, direction) + kBytesOfATensor);
      EXPECT_LE(workspace(kLong, direction), 8 * kBytesOfATensor);
    }
  }
}

TEST_P(CudaKernels, AllocateNothingOfTheirOwn) {
  const attest_kernel& table = *table_of(GetParam());
  Problem problem = parse_case("dtype=bf16 q=2048 k=2048 heads=8");
  if (!has_backward()) problem.direction = Direction::forward;
  PlacedCall placed(problem, table, *memory_);
  const auto run = [&](std::int32_t direction) {
    const attest_call call = placed.call(direction, table.workspace_bytes(&placed.abi, direction));
    ASSERT_EQ(direction == ATTEST_FORWARD ? table.forward(&call) : table.backward(&call), ATTEST_OK) << placed.message;
    memory_->synchronize();
    // The first call has loaded the kernel's code. Others may use the device too, so one undisturbed try is enough.
    bool unchanged = false;
    for (int attempt = 0; attempt < kAttempts && !unchanged; ++attempt) {
      const std::size_t before = memory_->used_bytes().value();
      ASSERT_EQ(direction == ATTEST_FORWARD ? table.forward(&call) : table.backward(&call), ATTEST_OK)
          << placed.message;
      memory_->synchronize();
      unchanged = memory_->used_bytes().value() == before;
    }
    EXPECT_TRUE(unchanged);
  };
  run(ATTEST_FORWARD);
  if (has_backward()) run(ATTEST_BACKWARD);
}

}  // namespace
}  // namespace attest

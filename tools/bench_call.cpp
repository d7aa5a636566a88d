// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_call.h"

#include <algorithm>
#include <random>
#include <span>
#include <stdexcept>

#include <fmt/format.h>

#include "reference/problem/invalid_request.h"
#include "reference/problem/layout.h"
#include "reference/problem/values.h"

namespace attest::tools {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 20;  // random numbers, repeated over a tensor
constexpr std::size_t kShift = 1237;                  // between the tensors, so that none equals another

void refuse(const char* what) { throw InvalidRequest("case", what, "one without it: only causal masks are timed"); }

}  // namespace

BenchCall::BenchCall(const Problem& problem, const Kernel& kernel, DeviceMemory& memory)
    : problem_(problem), kernel_(kernel), memory_(memory), abi_(problem) {
  if (problem.bias || problem.mask || problem.block || problem.alibi || problem.d_lse) refuse("a mask or bias");
  if (problem.window) refuse("a window");
  if (problem.page_size > 0) refuse("pages");
  call_.struct_size = sizeof call_;
  call_.problem = abi_.get();
  call_.q = tensor(TensorId::q);
  call_.k = tensor(TensorId::k);
  call_.v = tensor(TensorId::v);
  call_.o = tensor(TensorId::o);
  for (const auto& [view, id] : {std::pair{call_.q, TensorId::q}, {call_.k, TensorId::k}, {call_.v, TensorId::v}}) {
    randomise(view, id);
  }
  if (problem.wants_backward()) {
    call_.d_o = tensor(TensorId::d_o);
    call_.dq = tensor(TensorId::dq);
    call_.dk = tensor(TensorId::dk);
    call_.dv = tensor(TensorId::dv);
    randomise(call_.d_o, TensorId::d_o);
  }
  const bool packed = problem.layout == Layout::thd;
  const std::int64_t rows = problem.rows_q();
  const std::int64_t lse_elements = (packed ? 1 : problem.batch()) * problem.heads_q * rows;
  call_.lse = {allocate(static_cast<std::size_t>(lse_elements) * format_of(problem.lse_dtype()).bytes),
               packed ? 0 : problem.heads_q * rows, 1, rows};
  const auto place = [&](std::span<const std::int64_t> numbers) {
    const std::vector<std::int32_t> narrow(numbers.begin(), numbers.end());
    auto* const data = static_cast<std::int32_t*>(allocate(narrow.size() * sizeof(std::int32_t)));
    memory_.upload(data, narrow.data(), narrow.size() * sizeof(std::int32_t));
    return static_cast<const std::int32_t*>(data);
  };
  call_.seq_q = place(problem.seq_q);
  call_.seq_k = place(problem.seq_k);
  if (packed) {
    call_.cu_q = place(token_offsets(problem.seq_q));
    call_.cu_k = place(token_offsets(problem.seq_k));
  }
  tensor_bytes_ = 0;
  for (const DeviceBuffer& buffer : buffers_) tensor_bytes_ += buffer.bytes();
  if (kernel.table().workspace_bytes != nullptr) {
    for (const std::int32_t direction : {ATTEST_FORWARD, ATTEST_BACKWARD}) {
      if ((abi_.get()->directions & direction) == 0) continue;
      workspace_bytes_ = std::max(workspace_bytes_, kernel.table().workspace_bytes(abi_.get(), direction));
    }
  }
  if (workspace_bytes_ > 0) call_.workspace = allocate(workspace_bytes_);
  call_.workspace_bytes = workspace_bytes_;
  call_.stream = memory_.stream();
  call_.message = message_;
  call_.message_bytes = sizeof message_;
}

void BenchCall::enqueue(std::int32_t direction) {
  const attest_kernel& table = kernel_.table();
  const std::int32_t status = direction == ATTEST_FORWARD ? table.forward(&call_) : table.backward(&call_);
  if (status == ATTEST_OK) return;
  message_[sizeof message_ - 1] = '\0';
  throw std::runtime_error(fmt::format("kernel {} did not run: {}", kernel_.name(), message_));
}

void* BenchCall::allocate(std::size_t bytes) {
  buffers_.emplace_back(memory_, bytes);
  return buffers_.back().data();
}

attest_tensor BenchCall::tensor(TensorId id) {
  const Dtype type = is_output(id) ? problem_.output_dtype() : problem_.dtype;
  const Strides strides = strides_of(problem_, id);
  const std::size_t bytes = static_cast<std::size_t>(storage_elements(problem_, id)) * format_of(type).bytes;
  return {allocate(bytes), strides.batch, strides.seq, strides.head};
}

void BenchCall::randomise(const attest_tensor& tensor, TensorId id) {
  const auto elements = static_cast<std::size_t>(storage_elements(problem_, id));
  const std::size_t element = format_of(problem_.dtype).bytes;
  std::mt19937_64 engine(static_cast<std::uint64_t>(id) * kShift + 1);
  std::normal_distribution<double> normal;
  std::vector<double> values(std::min(elements, kBlock));
  for (double& value : values) value = normal(engine);
  std::vector<std::byte> block(values.size() * element);
  store_all(problem_.dtype, values, block.data());
  auto* const data = static_cast<std::byte*>(tensor.data);
  for (std::size_t at = 0; at < elements; at += kBlock) {
    memory_.upload(data + at * element, block.data(), std::min(kBlock, elements - at) * element);
  }
}

}  // namespace attest::tools

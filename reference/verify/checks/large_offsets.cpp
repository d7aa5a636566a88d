// SPDX-License-Identifier: Apache-2.0
// Offsets that 32 bits cannot hold, without the memory for them: one tensor at a time lies in a reserved range of addresses,
// its two sequences, or its two heads, 2^32 + 64 elements apart. Only the pages of its rows come to be. An offset cut to 32
// bits is 64 elements, which is within the range: a wrong answer, and no crash.
#include "reference/verify/checks/check_units.h"
#include "reference/verify/checks/compare.h"

#include <array>
#include <new>

#include <fmt/format.h>

#include "reference/problem/layout.h"

namespace attest {
namespace {

constexpr std::int64_t kApart = (std::int64_t{1} << 32) + 64;  // elements
constexpr std::array kOwnCases = {"batch=2 q=3 k=5 heads=2 dim=64 fill=normal@16", "dtype=f16 batch=2 q=3 k=5 heads=2 dim=64 fill=normal@16",
                                  "dtype=bf16 batch=2 q=3 k=5 heads=2 dim=64 fill=normal@16"};

attest_tensor& view_of(attest_call& call, TensorId id) {
  attest_tensor* const views[] = {&call.q, &call.k, &call.v, &call.o, &call.d_o, &call.dq, &call.dk, &call.dv};
  return *views[static_cast<std::size_t>(id)];
}

/// A tensor whose rows are far apart.
class FarTensor {
 public:
  FarTensor(const Problem& problem, TensorId id, bool far_heads, DeviceMemory& memory)
      : id_(id), memory_(memory), type_(is_output(id) ? problem.output_dtype() : problem.dtype), spread_(problem) {
    const Extents extents = extents_of(problem, id);
    Strides strides{.batch = kApart, .seq = extents.heads * extents.width, .head = extents.width};
    if (far_heads) strides = {.batch = extents.rows * extents.width, .seq = extents.width, .head = kApart};
    spread_.strides[static_cast<std::size_t>(id)] = strides;
    strides_ = strides;
    buffer_ = DeviceBuffer(memory, static_cast<std::size_t>(storage_elements(spread_, id)) * bytes());
  }

  void put_into(attest_call& call) const {
    view_of(call, id_) = {buffer_.data(), strides_.batch, strides_.seq, strides_.head};
  }

  /// Stores the rows of `values`, or, where there are none, what no result is.
  void fill(const Values* values) {
    for_rows([&](std::int64_t token, std::int64_t h, std::byte* row, std::size_t width) {
      std::vector<std::byte> stored(width * bytes(), std::byte{0xFF});
      if (values != nullptr) store_all(type_, values->row(token, h), stored.data());
      memory_.upload(row, stored.data(), stored.size());
    });
  }

  void read(Values& values) {
    for_rows([&](std::int64_t token, std::int64_t h, std::byte* row, std::size_t width) {
      std::vector<std::byte> stored(width * bytes());
      memory_.download(stored.data(), row, stored.size());
      load_all(type_, stored.data(), values.row(token, h));
    });
  }

 private:
  std::size_t bytes() const { return static_cast<std::size_t>(format_of(type_).bytes); }

  template <typename F>
  void for_rows(F f) const {
    const Extents extents = extents_of(spread_, id_);
    const ElementPlaces places(spread_, id_);
    for (std::int64_t b = 0; b < extents.batch; ++b) {
      for (std::int64_t i = 0; i < extents.rows; ++i) {
        for (std::int64_t h = 0; h < extents.heads; ++h) {
          f(b * extents.rows + i, h, buffer_.data() + static_cast<std::size_t>(places.offset(b, i, h)) * bytes(), static_cast<std::size_t>(extents.width));
        }
      }
    }
  }

  TensorId id_;
  DeviceMemory& memory_;
  Dtype type_;
  Problem spread_;
  Strides strides_;
  DeviceBuffer buffer_;
};

Values& result_of(Outputs& outputs, TensorId id) {
  return id == TensorId::o ? outputs.o : id == TensorId::dq ? outputs.dq : id == TensorId::dk ? outputs.dk : outputs.dv;
}

/// One direction with the tensor in its place; false where it gave no answer.
bool run_direction(const CheckContext& context, Placement& placement, const FarTensor& tensor, std::int32_t direction, KernelRun& run) {
  const attest_kernel& table = context.kernel().table();
  attest_call call = placement.call(direction, table.workspace_bytes == nullptr ? 0 : table.workspace_bytes(placement.problem(), direction));
  tensor.put_into(call);
  std::string message(256, '\0');
  call.message = message.data();
  call.message_bytes = message.size();
  const std::int32_t status = (direction == ATTEST_FORWARD ? table.forward : table.backward)(&call);
  context.memory().synchronize("large offsets");
  message.back() = '\0';
  if (status == ATTEST_REFUSED) run.refusal = fmt::format("refused the call: {}", message.c_str());
  if (status != ATTEST_OK && status != ATTEST_REFUSED) run.error = fmt::format("failed with status {}: {}", status, message.c_str());
  if (status == ATTEST_OK) placement.read_outputs(direction, run.outputs, run.findings);
  return status == ATTEST_OK;
}

KernelRun run_far(const CheckContext& context, TensorId id, FarTensor& tensor) {
  const Problem& p = context.problem();
  const Inputs& inputs = context.inputs();
  const Values* const values[] = {&inputs.q, &inputs.k, &inputs.v, nullptr, &inputs.d_o, nullptr, nullptr, nullptr};
  tensor.fill(values[static_cast<std::size_t>(id)]);
  Placement placement(p, inputs, context.conventions(), context.memory());
  KernelRun run;
  if (!run_direction(context, placement, tensor, ATTEST_FORWARD, run)) return run;
  if (p.wants_backward() && !run_direction(context, placement, tensor, ATTEST_BACKWARD, run)) return run;
  // The placement's own copy of the tensor was left alone.
  std::erase_if(run.findings, [&](const Finding& finding) { return finding.tensor == name_of(id); });
  if (is_output(id)) tensor.read(result_of(run.outputs, id));
  return run;
}

CheckResult run(const CheckContext& context) {
  const Problem& p = context.problem();
  if (!p.wants_forward()) return CheckResult::not_applicable("backward only");
  CheckResult result;
  for (const TensorId id : kTensorIds) {
    const bool of_backward = id == TensorId::d_o || id == TensorId::dq || id == TensorId::dk || id == TensorId::dv;
    if (of_backward && !p.wants_backward()) continue;
    for (const bool far_heads : {false, true}) {
      const std::string when = fmt::format("with {} elements between the {} of {}", kApart, far_heads ? "heads" : "sequences", name_of(id));
      try {
        FarTensor tensor(p, id, far_heads, context.memory());
        expect_repeats(context, run_far(context, id, tensor), when, result);
      } catch (const std::bad_alloc&) {
        return CheckResult::not_applicable("this machine does not reserve 2^32 elements");
      } catch (const KernelFailure& failure) {
        throw KernelFailure(failure.kind(), when + ": " + failure.what());
      }
      if (result.outcome != Outcome::pass || !result.findings.empty()) return result;
    }
  }
  return result;
}

}  // namespace

const CheckUnit kLargeOffsets = {"large-offsets", "sequences, or heads, more than 2^32 elements apart give the same answer",
                                 "K16 K17 K20", 16, run, kOwnCases};

}  // namespace attest

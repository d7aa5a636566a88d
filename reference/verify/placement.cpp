// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/placement.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include <fmt/format.h>

#include "reference/problem/dtype.h"
#include "reference/problem/invalid_request.h"
#include "reference/problem/layout.h"
#include "reference/verify/placement_buffer.h"

namespace attest {
namespace {

/// Fills whole elements of `type`; a remainder of bytes, which no element can be, stays as it is.
void fill_poison(Poison poison, Dtype type, std::span<std::byte> bytes) {
  std::fill(bytes.begin(), bytes.end(), kPoison);
  if (poison == Poison::nan) return;
  const double largest = format_of(type).max;
  double value = 0;
  if (poison == Poison::infinite) value = std::numeric_limits<double>::infinity();
  if (poison == Poison::minus_infinite) value = -std::numeric_limits<double>::infinity();
  if (poison == Poison::huge) value = largest;
  const std::size_t element = format_of(type).bytes;
  if (bytes.size() < element) return;
  store(type, value, bytes.data());
  for (std::size_t at = element; at + element <= bytes.size(); at += element) std::memcpy(bytes.data() + at, bytes.data(), element);
}

template <typename T>
std::vector<T> narrowed(std::span<const std::int64_t> values) {
  std::vector<T> out;
  for (const std::int64_t value : values) out.push_back(static_cast<T>(value));
  return out;
}

}  // namespace

std::string_view name_of(Poison poison) {
  constexpr std::string_view names[] = {"NaN", "zero", "+inf", "-inf", "the largest finite value"};
  return names[static_cast<std::size_t>(poison)];
}

void check_size(const Problem& problem, std::size_t byte_limit) {
  double storage = 0;
  double values = 0;
  for (const TensorId id : kTensorIds) {
    if (!problem.wants_backward() && id != TensorId::q && id != TensorId::k && id != TensorId::v && id != TensorId::o) continue;
    const Dtype type = is_output(id) ? problem.output_dtype() : problem.dtype;
    storage += static_cast<double>(storage_elements(problem, id)) * format_of(type).bytes;
    const bool query_side = is_query_side(id);
    const bool of_v = id == TensorId::v || id == TensorId::o || id == TensorId::d_o || id == TensorId::dv;
    values += static_cast<double>(query_side ? problem.total_q() : problem.total_k()) *
              static_cast<double>(query_side ? problem.heads_q : problem.heads_kv) *
              static_cast<double>(of_v ? problem.width_v() : problem.dim) * sizeof(double);
  }
  const double most = std::max(storage, values);
  if (most > static_cast<double>(byte_limit)) {
    throw InvalidRequest("case", fmt::format("{:.1f} GiB of tensors", most / (1 << 30)),
                         fmt::format("at most {:.1f} GiB", static_cast<double>(byte_limit) / (1 << 30)));
  }
}

Placement::Placement(const Problem& problem, const Inputs& inputs, const attest_conventions& conventions,
                     DeviceMemory& memory, Poison poison)
    : problem_(problem), poison_(poison), abi_(problem), conventions_(conventions), memory_(memory),
      offsets_q_(token_offsets(problem.seq_q)), offsets_k_(token_offsets(problem.seq_k)), places_o_(problem, TensorId::o) {
  add_tensor(TensorId::q, &inputs.q, false);
  add_tensor(TensorId::k, &inputs.k, false);
  add_tensor(TensorId::v, &inputs.v, false);
  add_tensor(TensorId::o, nullptr, true);
  const bool padded_lse = problem.layout == Layout::thd && conventions.lse_layout == ATTEST_LSE_PADDED;
  lse_rows_ = padded_lse ? problem.max_q() : problem.rows_q();
  const std::int64_t lse_batch = problem.layout == Layout::thd && !padded_lse ? 1 : problem.batch();
  const std::size_t lse_bytes =
      static_cast<std::size_t>(lse_batch * problem.heads_q * lse_rows_) * format_of(problem.lse_dtype()).bytes;
  lse_ = &add("lse", lse_bytes, true, problem.lse_dtype());
  if (problem.wants_backward()) {
    add_tensor(TensorId::d_o, &inputs.d_o, false);
    for (const TensorId id : {TensorId::dq, TensorId::dk, TensorId::dv}) add_tensor(id, nullptr, true);
    if (problem.d_lse) {
      d_lse_ = &add("dlse", lse_bytes, false, problem.lse_dtype());
      for (std::int64_t b = 0; b < problem.batch(); ++b) {
        for (std::int64_t i = 0; i < problem.seq_q[b]; ++i) {
          for (std::int64_t h = 0; h < problem.heads_q; ++h) {
            store(problem.lse_dtype(), inputs.d_lse[(offsets_q_[b] + i) * problem.heads_q + h],
                  d_lse_->storage() + lse_index(b, i, h) * format_of(problem.lse_dtype()).bytes);
          }
        }
      }
    }
  }
  place_operands(inputs);
  place_lengths();
  for (const auto& buffer : buffers_) memory_.upload(buffer->device, buffer->image.data(), buffer->image.size());
}

Placement::~Placement() {
  for (const auto& buffer : buffers_) memory_.release(buffer->device);
}

Placement::Buffer& Placement::add(std::string name, std::size_t bytes, bool output, Dtype type) {
  auto buffer = std::make_unique<Buffer>();
  buffer->name = std::move(name);
  buffer->output = output;
  buffer->image.resize(bytes + 2 * kGuardBytes);
  fill_poison(poison_, type, std::span(buffer->image).subspan(kGuardBytes, bytes));
  std::fill_n(buffer->image.begin(), kGuardBytes, kGuardPattern);
  std::fill_n(buffer->image.end() - kGuardBytes, kGuardBytes, kGuardPattern);
  buffer->device = static_cast<std::byte*>(memory_.allocate(buffer->image.size()));
  buffers_.push_back(std::move(buffer));
  return *buffers_.back();
}

Placement::Buffer& Placement::add_tensor(TensorId id, const Values* values, bool output) {
  const Dtype type = is_output(id) ? problem_.output_dtype() : problem_.dtype;
  const std::size_t element = format_of(type).bytes;
  Buffer& buffer = add(std::string(name_of(id)), static_cast<std::size_t>(storage_elements(problem_, id)) * element, output, type);
  tensors_[static_cast<std::size_t>(id)] = &buffer;
  if (values == nullptr) return buffer;
  const ElementPlaces places(problem_, id);
  const std::vector<std::int64_t>& lengths = is_query_side(id) ? problem_.seq_q : problem_.seq_k;
  const std::vector<std::int64_t>& offsets = is_query_side(id) ? offsets_q_ : offsets_k_;
  for (std::int64_t b = 0; b < problem_.batch(); ++b) {
    for (std::int64_t i = 0; i < lengths[b]; ++i) {
      for (std::int64_t h = 0; h < values->heads; ++h) {
        store_all(type, values->row(offsets[b] + i, h), buffer.storage() + places.offset(b, i, h) * element);
      }
    }
  }
  return buffer;
}

void Placement::place_operands(const Inputs& inputs) {
  if (problem_.bias) {
    const Dtype type = problem_.bias_dtype();
    bias_ = &add("bias", inputs.bias.data.size() * format_of(type).bytes, false);
    store_all(type, inputs.bias.data, bias_->storage());
    bias_shape_ = inputs.bias;
    bias_shape_.data.clear();
    if (problem_.d_bias) {
      d_bias_ = &add("dbias", inputs.bias.data.size() * format_of(problem_.lse_dtype()).bytes, true, problem_.lse_dtype());
    }
  }
  const auto place_bytes = [&](const char* name, const Operand<std::uint8_t>& operand, Operand<std::uint8_t>& shape) {
    Buffer& buffer = add(name, operand.data.size(), false);
    if (!operand.data.empty()) std::memcpy(buffer.storage(), operand.data.data(), operand.data.size());
    shape = operand;
    shape.data.clear();
    return &buffer;
  };
  if (problem_.mask) mask_ = place_bytes("mask", inputs.mask, mask_shape_);
  if (problem_.block) block_mask_ = place_bytes("block mask", inputs.block_mask, block_shape_);
  if (problem_.alibi) {
    slopes_ = &add("alibi slopes", inputs.alibi_slopes.size() * sizeof(float), false);
    store_all(Dtype::f32, inputs.alibi_slopes, slopes_->storage());
  }
}

void Placement::place_lengths() {
  const auto place = [&](const char* name, std::span<const std::int64_t> values) {
    const std::vector<std::int32_t> narrow = narrowed<std::int32_t>(values);
    Buffer& buffer = add(name, narrow.size() * sizeof(std::int32_t), false);
    std::memcpy(buffer.storage(), narrow.data(), narrow.size() * sizeof(std::int32_t));
    return &buffer;
  };
  if (problem_.layout == Layout::thd) {
    cu_q_ = place("cu_q", offsets_q_);
    cu_k_ = place("cu_k", offsets_k_);
  }
  if (problem_.page_size > 0) page_table_ = place("page table", page_table(problem_));
  seq_q_ = place("seq_q", problem_.seq_q);
  seq_k_ = place("seq_k", problem_.seq_k);
}

std::int64_t Placement::lse_index(std::int64_t b, std::int64_t i, std::int64_t h) const {
  const bool packed = problem_.layout == Layout::thd;
  if (packed && conventions_.lse_layout == ATTEST_LSE_PADDED) return (b * problem_.heads_q + h) * lse_rows_ + i;
  const std::int64_t row = places_o_.row(b, i);
  return packed ? h * lse_rows_ + row : (b * problem_.heads_q + h) * lse_rows_ + row;
}

void Placement::give_forward(const ForwardResult& forward) {
  Buffer& o = *tensors_[static_cast<std::size_t>(TensorId::o)];
  const std::size_t element = format_of(problem_.output_dtype()).bytes;
  const std::size_t lse_element = format_of(problem_.lse_dtype()).bytes;
  for (std::int64_t b = 0; b < problem_.batch(); ++b) {
    for (std::int64_t i = 0; i < problem_.seq_q[b]; ++i) {
      for (std::int64_t h = 0; h < problem_.heads_q; ++h) {
        const std::int64_t token = offsets_q_[b] + i;
        store_all(problem_.output_dtype(), forward.o.row(token, h),
                  o.storage() + places_o_.offset(b, i, h) * element);
        store(problem_.lse_dtype(), forward.lse[token * problem_.heads_q + h],
              lse_->storage() + lse_index(b, i, h) * lse_element);
      }
    }
  }
  memory_.upload(o.device, o.image.data(), o.image.size());
  memory_.upload(lse_->device, lse_->image.data(), lse_->image.size());
}

attest_tensor Placement::tensor_view(TensorId id) const {
  const Buffer* buffer = tensors_[static_cast<std::size_t>(id)];
  if (buffer == nullptr) return {};
  const Strides strides = strides_of(problem_, id);
  const bool packed = problem_.layout == Layout::thd && !is_paged(problem_, id);
  return {buffer->data(), packed ? 0 : strides.batch, strides.seq, strides.head};
}

attest_tensor Placement::lse_view(const Buffer* buffer) const {
  if (buffer == nullptr) return {};
  const bool packed = problem_.layout == Layout::thd;
  if (packed && conventions_.lse_layout == ATTEST_LSE_ROWS) return {buffer->data(), 0, 1, problem_.rows_q()};
  const std::int64_t rows = packed ? problem_.max_q() : problem_.rows_q();
  return {buffer->data(), problem_.heads_q * rows, 1, rows};
}

attest_call Placement::call(std::int32_t direction, std::size_t workspace_bytes) {
  attest_call call{};
  call.struct_size = sizeof(call);
  call.problem = abi_.get();
  call.q = tensor_view(TensorId::q);
  call.k = tensor_view(TensorId::k);
  call.v = tensor_view(TensorId::v);
  call.o = tensor_view(TensorId::o);
  call.lse = lse_view(lse_);
  if (direction == ATTEST_BACKWARD) {
    // What the forward left is from now on an input, to be found unchanged.
    for (Buffer* buffer : {tensors_[static_cast<std::size_t>(TensorId::o)], lse_}) {
      fetch(*buffer);
      buffer->image = buffer->got;
    }
    call.d_o = tensor_view(TensorId::d_o);
    call.d_lse = lse_view(d_lse_);
    call.dq = tensor_view(TensorId::dq);
    call.dk = tensor_view(TensorId::dk);
    call.dv = tensor_view(TensorId::dv);
  }
  const auto operand = [](const Buffer* buffer, const auto& shape) -> attest_operand {
    if (buffer == nullptr) return {};
    const auto stride = [](std::int64_t extent, std::int64_t value) { return extent == 1 ? 0 : value; };
    return {buffer->data(), stride(shape.extent_b, shape.extent_h * shape.extent_q * shape.extent_k),
            stride(shape.extent_h, shape.extent_q * shape.extent_k), stride(shape.extent_q, shape.extent_k),
            stride(shape.extent_k, 1)};
  };
  call.bias = operand(bias_, bias_shape_);
  if (direction == ATTEST_BACKWARD) call.d_bias = operand(d_bias_, bias_shape_);
  call.mask = operand(mask_, mask_shape_);
  call.block_mask = operand(block_mask_, block_shape_);
  call.alibi_slopes = slopes_ == nullptr ? nullptr : static_cast<const float*>(slopes_->data());
  const auto lengths = [](const Buffer* buffer) {
    return buffer == nullptr ? nullptr : static_cast<const std::int32_t*>(buffer->data());
  };
  call.cu_q = lengths(cu_q_);
  call.cu_k = lengths(cu_k_);
  call.seq_q = lengths(seq_q_);
  call.seq_k = lengths(seq_k_);
  call.page_table = lengths(page_table_);
  call.page_table_stride = page_table_ == nullptr ? 0 : pages_in_row(problem_);
  if (workspace_bytes > 0) {
    Buffer& workspace = add("workspace", workspace_bytes, true);
    workspace_[direction == ATTEST_BACKWARD ? 1 : 0] = &workspace;
    memory_.upload(workspace.device, workspace.image.data(), workspace.image.size());
    call.workspace = workspace.data();
    call.workspace_bytes = workspace_bytes;
  }
  call.stream = memory_.stream();
  return call;
}

}  // namespace attest

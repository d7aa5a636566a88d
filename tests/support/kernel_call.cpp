// SPDX-License-Identifier: Apache-2.0
#include "tests/support/kernel_call.h"

#include <limits>

#include "reference/problem/layout.h"

namespace attest {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Dtype type_of(const Problem& problem, TensorId id) { return is_output(id) ? problem.output_dtype() : problem.dtype; }

std::vector<std::byte> filled(Dtype type, std::int64_t count, double value) {
  const int bytes = format_of(type).bytes;
  std::vector<std::byte> storage(static_cast<std::size_t>(count * bytes));
  for (std::int64_t c = 0; c < count; ++c) store(type, value, storage.data() + c * bytes);
  return storage;
}

template <typename T>
attest_operand operand(const Operand<T>& from, void* data) {
  const auto stride = [](std::int64_t extent, std::int64_t step) { return extent == 1 ? 0 : step; };
  return {data, stride(from.extent_b, from.extent_h * from.extent_q * from.extent_k),
          stride(from.extent_h, from.extent_q * from.extent_k), stride(from.extent_q, from.extent_k),
          stride(from.extent_k, 1)};
}

attest_problem sizes_of(const Problem& p) {
  attest_problem to{};
  to.struct_size = sizeof to;
  to.directions = (p.wants_forward() ? ATTEST_FORWARD : 0) | (p.wants_backward() ? ATTEST_BACKWARD : 0);
  to.dtype = static_cast<std::int32_t>(p.dtype);
  to.out_dtype = static_cast<std::int32_t>(p.output_dtype());
  to.lse_dtype = static_cast<std::int32_t>(p.lse_dtype());
  to.layout = static_cast<std::int32_t>(p.layout);
  to.pad_side = static_cast<std::int32_t>(p.pad);
  to.batch = p.batch();
  to.seq_q = p.seq_q.data();
  to.seq_k = p.seq_k.data();
  to.max_q = p.max_q(), to.max_k = p.max_k();
  to.rows_q = p.rows_q(), to.rows_k = p.rows_k();
  to.heads_q = p.heads_q, to.heads_kv = p.heads_kv;
  to.dim = p.dim, to.dim_v = p.width_v();
  to.scale = p.effective_scale(), to.softcap = p.effective_softcap();
  to.causal = static_cast<std::int32_t>(p.causal);
  if (p.window) {
    const Causal own = p.window->alignment == Causal::none ? p.causal : p.window->alignment;
    to.has_window = 1, to.window_left = p.window->left, to.window_right = p.window->right;
    to.window_align = own == Causal::top_left ? ATTEST_CAUSAL_TOP_LEFT : ATTEST_CAUSAL_BOTTOM_RIGHT;
  }
  to.has_bias = p.bias.has_value(), to.bias_dtype = static_cast<std::int32_t>(p.bias_dtype());
  to.has_alibi = p.alibi;
  to.has_mask = p.mask.has_value();
  if (p.block) to.has_block_mask = 1, to.block_rows = p.block->rows, to.block_cols = p.block->cols;
  if (p.dropout) {
    to.has_dropout = 1, to.dropout_p = p.effective_dropout();
    to.dropout_seed = p.dropout->seed, to.dropout_offset = p.dropout->offset;
  }
  to.has_d_lse = p.d_lse, to.wants_d_bias = p.d_bias;
  return to;
}

}  // namespace

KernelCall::KernelCall(const Problem& problem, const Inputs& inputs, Data data) : source_(problem) {
  problem_ = sizes_of(source_);
  call_.struct_size = sizeof call_;
  call_.problem = &problem_;
  if (data == Data::absent) return;
  for (const TensorId id : kTensorIds) {
    storage_[static_cast<std::size_t>(id)] = filled(type_of(source_, id), storage_elements(source_, id), kNan);
    const Strides strides = strides_of(source_, id);
    tensor(id) = {bytes(id).data(), strides.batch, strides.seq, strides.head};
  }
  place(TensorId::q, inputs.q);
  place(TensorId::k, inputs.k);
  place(TensorId::v, inputs.v);
  if (source_.wants_backward()) place(TensorId::d_o, inputs.d_o);

  const bool packed = source_.layout == Layout::thd;
  const std::int64_t rows = source_.rows_q(), count = (packed ? 1 : source_.batch()) * source_.heads_q * rows;
  lse_ = filled(source_.lse_dtype(), count, kNan);
  call_.lse = {lse_.data(), packed ? 0 : source_.heads_q * rows, 1, rows};
  if (source_.d_lse) {
    d_lse_ = filled(source_.lse_dtype(), count, kNan);
    call_.d_lse = {d_lse_.data(), call_.lse.stride_batch, 1, rows};
    const auto offsets = token_offsets(source_.seq_q);
    for (std::int64_t b = 0; b < source_.batch(); ++b)
      for (std::int64_t i = 0; i < source_.seq_q[static_cast<std::size_t>(b)]; ++i)
        for (std::int64_t h = 0; h < source_.heads_q; ++h) {
          const std::int64_t row = row_of_token(source_, TensorId::o, b, i);
          const std::int64_t at = (packed ? 0 : b * source_.heads_q * rows) + h * rows + row;
          const std::int64_t token = offsets[static_cast<std::size_t>(b)] + i;
          store(source_.lse_dtype(), inputs.d_lse[static_cast<std::size_t>(token * source_.heads_q + h)],
                d_lse_.data() + at * format_of(source_.lse_dtype()).bytes);
        }
  }
  if (source_.bias) {
    bias_.resize(inputs.bias.data.size() * static_cast<std::size_t>(format_of(source_.bias_dtype()).bytes));
    store_all(source_.bias_dtype(), inputs.bias.data, bias_.data());
    call_.bias = operand(inputs.bias, bias_.data());
    d_bias_ = filled(source_.lse_dtype(), static_cast<std::int64_t>(inputs.bias.data.size()), kNan);
    call_.d_bias = operand(inputs.bias, d_bias_.data());
  }
  mask_ = inputs.mask.data, block_mask_ = inputs.block_mask.data;
  call_.mask = operand(inputs.mask, mask_.data());
  call_.block_mask = operand(inputs.block_mask, block_mask_.data());
  slopes_.assign(inputs.alibi_slopes.begin(), inputs.alibi_slopes.end());
  call_.alibi_slopes = slopes_.data();
  const auto narrow = [](const auto& from) { return std::vector<std::int32_t>(from.begin(), from.end()); };
  seq_q_ = narrow(source_.seq_q), seq_k_ = narrow(source_.seq_k);
  cu_q_ = narrow(token_offsets(source_.seq_q)), cu_k_ = narrow(token_offsets(source_.seq_k));
  call_.seq_q = seq_q_.data(), call_.seq_k = seq_k_.data();
  if (packed) call_.cu_q = cu_q_.data(), call_.cu_k = cu_k_.data();
  call_.message = message_;
  call_.message_bytes = sizeof message_;
}

attest_tensor& KernelCall::tensor(TensorId id) {
  attest_tensor* const tensors[] = {&call_.q,   &call_.k,  &call_.v,  &call_.o,
                                    &call_.d_o, &call_.dq, &call_.dk, &call_.dv};
  return *tensors[static_cast<std::size_t>(id)];
}

std::int32_t KernelCall::run(const attest_kernel& kernel) {
  const std::int32_t status = forward(kernel);
  return status == ATTEST_OK && source_.wants_backward() ? backward(kernel) : status;
}

void KernelCall::place(TensorId id, const Values& values) {
  const Dtype type = type_of(source_, id);
  const auto& lengths = is_query_side(id) ? source_.seq_q : source_.seq_k;
  std::int64_t token = 0;
  for (std::int64_t b = 0; b < source_.batch(); ++b)
    for (std::int64_t i = 0; i < lengths[static_cast<std::size_t>(b)]; ++i, ++token)
      for (std::int64_t h = 0; h < values.heads; ++h)
        store_all(type, values.row(token, h),
                  bytes(id).data() + offset_of(source_, id, b, i, h) * format_of(type).bytes);
}

Values KernelCall::take(TensorId id) const {
  const Dtype type = type_of(source_, id);
  const Extents extents = extents_of(source_, id);
  const auto& lengths = is_query_side(id) ? source_.seq_q : source_.seq_k;
  Values to(is_query_side(id) ? source_.total_q() : source_.total_k(), extents.heads, extents.width);
  std::int64_t token = 0;
  for (std::int64_t b = 0; b < source_.batch(); ++b)
    for (std::int64_t i = 0; i < lengths[static_cast<std::size_t>(b)]; ++i, ++token)
      for (std::int64_t h = 0; h < extents.heads; ++h)
        load_all(
            type,
            storage_[static_cast<std::size_t>(id)].data() + offset_of(source_, id, b, i, h) * format_of(type).bytes,
            to.row(token, h));
  return to;
}

Exact KernelCall::outputs() const {
  Exact out;
  out.o = take(TensorId::o);
  const std::int64_t rows = source_.rows_q();
  for (std::int64_t b = 0; b < source_.batch(); ++b)
    for (std::int64_t i = 0; i < source_.seq_q[static_cast<std::size_t>(b)]; ++i)
      for (std::int64_t h = 0; h < source_.heads_q; ++h) {
        const std::int64_t at = b * call_.lse.stride_batch + h * rows + row_of_token(source_, TensorId::o, b, i);
        out.lse.push_back(load(source_.lse_dtype(), lse_.data() + at * format_of(source_.lse_dtype()).bytes));
      }
  if (!source_.wants_backward()) return out;
  out.dq = take(TensorId::dq);
  out.dk = take(TensorId::dk);
  out.dv = take(TensorId::dv);
  if (source_.d_bias) {
    out.d_bias.data.resize(d_bias_.size() / static_cast<std::size_t>(format_of(source_.lse_dtype()).bytes));
    load_all(source_.lse_dtype(), d_bias_.data(), out.d_bias.data);
  }
  return out;
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// What a kernel left in its buffers: results as values, and what was written that should not have been.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "reference/problem/dtype.h"
#include "reference/problem/layout.h"
#include "reference/verify/placement.h"
#include "reference/verify/placement_buffer.h"

namespace attest {
namespace {

bool is_poison(const std::byte* element, std::size_t bytes) {
  return std::all_of(element, element + bytes, [](std::byte b) { return b == kPoison; });
}

}  // namespace

void Placement::fetch(Buffer& buffer) {
  buffer.got.resize(buffer.image.size());
  memory_.download(buffer.got.data(), buffer.device, buffer.image.size());
}

void Placement::read_outputs(std::int32_t direction, Outputs& outputs, std::vector<Finding>& findings) {
  if (direction == ATTEST_FORWARD) {
    outputs.o = Values(problem_.total_q(), problem_.heads_q, problem_.width_v());
    read_tensor(TensorId::o, outputs.o, findings);
    read_lse(outputs.lse, findings);
    return;
  }
  outputs.dq = Values(problem_.total_q(), problem_.heads_q, problem_.dim);
  outputs.dk = Values(problem_.total_k(), problem_.heads_kv, problem_.dim);
  outputs.dv = Values(problem_.total_k(), problem_.heads_kv, problem_.width_v());
  read_tensor(TensorId::dq, outputs.dq, findings);
  read_tensor(TensorId::dk, outputs.dk, findings);
  read_tensor(TensorId::dv, outputs.dv, findings);
  if (d_bias_ != nullptr) read_d_bias(outputs.d_bias, findings);
}

namespace {

/// Counts elements that still hold the pre-fill, and remembers where the first one is.
struct UnwrittenCount {
  std::int64_t count = 0;
  std::int64_t total = 0;
  std::string first;

  void report(const std::string& tensor, std::vector<Finding>& findings) const {
    if (count == 0) return;
    findings.push_back(
        {"unwritten", tensor,
         fmt::format("{} of {} elements of {} were never written, first {}", count, total, tensor, first)});
  }
};

}  // namespace

bool Placement::is_unwritten(const std::byte* element, std::size_t bytes) const {
  // Other patterns may be results.
  return poison_ == Poison::nan && is_poison(element, bytes);
}

void Placement::read_tensor(TensorId id, Values& values, std::vector<Finding>& findings) {
  Buffer& buffer = *tensors_[static_cast<std::size_t>(id)];
  fetch(buffer);
  const Dtype type = problem_.output_dtype();
  const std::size_t element = format_of(type).bytes;
  const std::vector<std::int64_t>& lengths = is_query_side(id) ? problem_.seq_q : problem_.seq_k;
  const std::vector<std::int64_t>& offsets = is_query_side(id) ? offsets_q_ : offsets_k_;
  const ElementPlaces places(problem_, id);
  UnwrittenCount unwritten;
  for (std::int64_t b = 0; b < problem_.batch(); ++b) {
    for (std::int64_t i = 0; i < lengths[b]; ++i) {
      for (std::int64_t h = 0; h < values.heads; ++h) {
        std::byte* row = buffer.got.data() + kGuardBytes + places.offset(b, i, h) * element;
        load_all(type, row, values.row(offsets[b] + i, h));
        for (std::int64_t c = 0; c < values.width; ++c) {
          unwritten.total += 1;
          if (!is_unwritten(row + c * element, element)) continue;
          if (unwritten.count++ == 0) unwritten.first = fmt::format("[b={} h={} i={} d={}]", b, h, i, c);
        }
        // What may be written is put back, so that inspect() sees only what may not.
        std::memcpy(row, buffer.image.data() + (row - buffer.got.data()),
                    static_cast<std::size_t>(values.width) * element);
      }
    }
  }
  unwritten.report(buffer.name, findings);
}

void Placement::read_lse(std::vector<double>& lse, std::vector<Finding>& findings) {
  fetch(*lse_);
  const std::size_t element = format_of(problem_.lse_dtype()).bytes;
  lse.assign(static_cast<std::size_t>(problem_.total_q() * problem_.heads_q), 0);
  UnwrittenCount unwritten;
  for (std::int64_t b = 0; b < problem_.batch(); ++b) {
    for (std::int64_t i = 0; i < problem_.seq_q[b]; ++i) {
      for (std::int64_t h = 0; h < problem_.heads_q; ++h) {
        std::byte* at = lse_->got.data() + kGuardBytes + lse_index(b, i, h) * element;
        lse[(offsets_q_[b] + i) * problem_.heads_q + h] = load(problem_.lse_dtype(), at);
        unwritten.total += 1;
        if (is_unwritten(at, element) && unwritten.count++ == 0)
          unwritten.first = fmt::format("[b={} h={} i={}]", b, h, i);
        std::memcpy(at, lse_->image.data() + (at - lse_->got.data()), element);
      }
    }
  }
  unwritten.report("lse", findings);
}

void Placement::read_d_bias(Operand<double>& d_bias, std::vector<Finding>& findings) {
  fetch(*d_bias_);
  const std::size_t element = format_of(problem_.lse_dtype()).bytes;
  d_bias = bias_shape_;
  d_bias.data.resize(d_bias_->bytes() / element);
  std::byte* storage = d_bias_->got.data() + kGuardBytes;
  load_all(problem_.lse_dtype(), storage, d_bias.data);
  UnwrittenCount unwritten;
  for (std::size_t at = 0; at < d_bias.data.size(); ++at) {
    unwritten.total += 1;
    if (is_unwritten(storage + at * element, element) && unwritten.count++ == 0)
      unwritten.first = fmt::format("[{}]", at);
  }
  std::copy_n(d_bias_->image.begin() + kGuardBytes, d_bias_->bytes(), storage);
  unwritten.report("dbias", findings);
}

bool Placement::is_result(const Buffer& buffer, std::int32_t direction) const {
  if (&buffer == workspace_[0] || &buffer == workspace_[1] || !buffer.output) return false;
  const bool forward_result = &buffer == lse_ || &buffer == tensors_[static_cast<std::size_t>(TensorId::o)];
  return forward_result == (direction == ATTEST_FORWARD);
}

bool Placement::wrote_results(std::int32_t direction) {
  bool wrote = false;
  for (const auto& buffer : buffers_) {
    if (!is_result(*buffer, direction)) continue;
    fetch(*buffer);
    wrote |= buffer->got != buffer->image;
  }
  return wrote;
}

void Placement::inspect(std::int32_t direction, std::vector<Finding>& findings) {
  const bool backward = direction == ATTEST_BACKWARD;
  for (const auto& owned : buffers_) {
    Buffer& buffer = *owned;
    const bool workspace = &buffer == workspace_[0] || &buffer == workspace_[1];
    // Results were fetched when they were read, with the written part restored.
    if (!is_result(buffer, direction)) fetch(buffer);
    const auto first_change = [&](std::size_t from, std::size_t to) {
      if (std::memcmp(buffer.got.data() + from, buffer.image.data() + from, to - from) == 0) return to;
      return static_cast<std::size_t>(
          std::mismatch(buffer.got.begin() + from, buffer.got.begin() + to, buffer.image.begin() + from).first -
          buffer.got.begin());
    };
    const std::size_t end = kGuardBytes + buffer.bytes();
    if (const std::size_t at = first_change(0, kGuardBytes); at < kGuardBytes) {
      findings.push_back(
          {"guard", buffer.name,
           fmt::format("memory before {} was written, {} bytes ahead of it", buffer.name, kGuardBytes - at)});
    }
    if (const std::size_t at = first_change(end, end + kGuardBytes); at < end + kGuardBytes) {
      findings.push_back({"guard", buffer.name,
                          fmt::format("memory after {} was written, {} bytes past its end", buffer.name, at - end)});
    }
    if (workspace) continue;
    const std::size_t at = first_change(kGuardBytes, end);
    if (at == end) continue;
    if (is_result(buffer, direction)) {
      findings.push_back(
          {"gap", buffer.name,
           fmt::format("padding or a gap between rows of {} was written, at byte {}", buffer.name, at - kGuardBytes)});
    } else if (buffer.output) {
      // o and lse are inputs of the backward, and a forward has no business in gradients.
      findings.push_back({"input", buffer.name,
                          fmt::format("{} was changed by the {}", buffer.name, backward ? "backward" : "forward")});
    } else {
      findings.push_back(
          {"input", buffer.name, fmt::format("input {} was changed, at byte {}", buffer.name, at - kGuardBytes)});
    }
  }
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
#include "reference/models/call_view.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace attest {
namespace {

constexpr std::int64_t kFar = std::int64_t{1} << 40;  // beyond any length; keeps sums of window edges in range

std::byte* address(const attest_tensor& tensor, std::int32_t type, std::int64_t element) {
  return static_cast<std::byte*>(tensor.data) + element * format_of(dtype_of(type)).bytes;
}

std::int64_t operand_index(const attest_operand& x, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  return b * x.stride_batch + h * x.stride_head + i * x.stride_query + j * x.stride_key;
}

std::string why_invalid_offsets(const char* name, const std::int32_t* cu, const std::int32_t* lengths,
                                std::int64_t batch, std::int64_t rows) {
  if (cu == nullptr) return std::string(name) + ": missing";
  if (cu[0] != 0) return std::string(name) + ": does not start at 0";
  for (std::int64_t b = 0; b < batch; ++b) {
    if (cu[b + 1] < cu[b]) return std::string(name) + ": falls at sequence " + std::to_string(b);
    if (cu[b + 1] - cu[b] != lengths[b])
      return std::string(name) + ": disagrees with the length of sequence " + std::to_string(b);
  }
  if (cu[batch] > rows) return std::string(name) + ": passes the end of the tensor";
  return {};
}

std::string why_invalid_lengths(const char* name, const std::int64_t* lengths, const attest_problem& problem,
                                std::int64_t max, std::int64_t rows) {
  std::int64_t total = 0;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    if (lengths[b] < 0) return std::string(name) + ": negative length of sequence " + std::to_string(b);
    if (lengths[b] > max)
      return std::string(name) + ": length above the stated maximum in sequence " + std::to_string(b);
    total += lengths[b];
  }
  if ((problem.layout == ATTEST_THD ? total : max) > rows) return std::string(name) + ": does not fit the tensor";
  return {};
}

std::string why_invalid_pages(const attest_call& call) {
  const attest_problem& problem = *call.problem;
  if (call.page_table == nullptr) return "page_table: missing";
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const std::int64_t pages = (problem.seq_k[b] + problem.page_size - 1) / problem.page_size;
    if (pages > call.page_table_stride) return "page_table: too few numbers for sequence " + std::to_string(b);
    for (std::int64_t c = 0; c < pages; ++c) {
      const std::int32_t page = call.page_table[b * call.page_table_stride + c];
      if (page < 0 || page >= problem.pages) return "page_table: names no page in sequence " + std::to_string(b);
    }
  }
  return {};
}

}  // namespace

std::string why_invalid(const attest_problem& problem) {
  if (problem.struct_size < sizeof(attest_problem)) return "struct_size: older than this kernel";
  if (problem.dtype < ATTEST_F64 || problem.dtype > ATTEST_F8E5M2) return "dtype: not a storage type";
  if (problem.out_dtype < ATTEST_F64 || problem.out_dtype > ATTEST_F8E5M2) return "out_dtype: not a storage type";
  if (problem.lse_dtype != (problem.dtype == ATTEST_F64 ? ATTEST_F64 : ATTEST_F32)) return "lse_dtype: not supported";
  if (problem.layout < ATTEST_BSHD || problem.layout > ATTEST_THD) return "layout: unknown";
  if (problem.batch < 1) return "batch: below 1";
  if (problem.heads_q < 1 || problem.heads_kv < 1) return "heads: below 1";
  if (problem.heads_q % problem.heads_kv != 0) return "heads: query heads are not a multiple of key/value heads";
  if (problem.dim < 1 || problem.dim_v < 1) return "dim: below 1";
  if (!std::isfinite(problem.scale)) return "scale: not finite";
  if (!(problem.softcap >= 0) || !std::isfinite(problem.softcap)) return "softcap: not a finite number of at least 0";
  if (problem.has_dropout && !(problem.dropout_p >= 0 && problem.dropout_p < 1)) return "dropout_p: not in [0, 1)";
  if (problem.has_window && (problem.window_left < -1 || problem.window_right < -1)) return "window: below -1";
  if (problem.has_block_mask && (problem.block_rows < 1 || problem.block_cols < 1)) return "block mask: empty tiles";
  if (problem.page_size < 0) return "page_size: negative";
  if (problem.page_size > 0 && (problem.directions & ATTEST_BACKWARD) != 0) return "page_size: forward only";
  std::string why = why_invalid_lengths("seq_q", problem.seq_q, problem, problem.max_q, problem.rows_q);
  if (why.empty()) why = why_invalid_lengths("seq_k", problem.seq_k, problem, problem.max_k, problem.rows_k);
  return why;
}

std::string why_invalid(const attest_call& call, std::int32_t direction) {
  if (call.struct_size < sizeof(attest_call)) return "struct_size: older than this kernel";
  const attest_problem& problem = *call.problem;
  if (std::string why = why_invalid(problem); !why.empty()) return why;
  if (call.seq_q == nullptr || call.seq_k == nullptr) return "seq_q, seq_k: missing";
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    if (call.seq_q[b] != problem.seq_q[b]) return "seq_q: differs from the problem's in sequence " + std::to_string(b);
    if (call.seq_k[b] != problem.seq_k[b]) return "seq_k: differs from the problem's in sequence " + std::to_string(b);
  }
  if (problem.layout == ATTEST_THD) {
    std::string why = why_invalid_offsets("cu_q", call.cu_q, call.seq_q, problem.batch, problem.rows_q);
    if (why.empty()) why = why_invalid_offsets("cu_k", call.cu_k, call.seq_k, problem.batch, problem.rows_k);
    if (!why.empty()) return why;
  }
  if (problem.page_size > 0) {
    if (std::string why = why_invalid_pages(call); !why.empty()) return why;
  }
  if (problem.has_alibi && call.alibi_slopes == nullptr) return "alibi_slopes: missing";
  const bool backward = direction == ATTEST_BACKWARD;
  if (backward && problem.wants_d_bias &&
      (!problem.has_bias || (call.d_bias.data == nullptr && problem.max_q * problem.max_k > 0)))
    return "d_bias: asked for without a bias or a place for it";
  return {};
}

SeenKeys CallView::seen_keys(std::int64_t b, std::int64_t i) const {
  const std::int64_t sk = keys(b);
  const std::int64_t diagonal = i + sk - queries(b);  // the last key under bottom-right alignment
  SeenKeys seen{0, sk};
  if (problem_.causal == ATTEST_CAUSAL_TOP_LEFT) seen.last = std::min(sk, i + 1);
  if (problem_.causal == ATTEST_CAUSAL_BOTTOM_RIGHT) seen.last = std::min(sk, diagonal + 1);
  if (problem_.has_window) {
    const std::int64_t centre = problem_.window_align == ATTEST_CAUSAL_TOP_LEFT ? i : diagonal;
    if (problem_.window_left >= 0) seen.first = std::max(seen.first, centre - std::min(problem_.window_left, kFar));
    if (problem_.window_right >= 0) seen.last = std::min(seen.last, centre + std::min(problem_.window_right, kFar) + 1);
  }
  return seen;
}

bool CallView::shown(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
  if (problem_.has_mask &&
      static_cast<const std::uint8_t*>(call_.mask.data)[operand_index(call_.mask, b, h, i, j)] == 0)
    return false;
  return !problem_.has_block_mask || block_shown(b, h, i, j);
}

bool CallView::block_shown(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
  const std::int64_t index = operand_index(call_.block_mask, b, h, i / problem_.block_rows, j / problem_.block_cols);
  return static_cast<const std::uint8_t*>(call_.block_mask.data)[index] != 0;
}

double CallView::added(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
  double sum = 0;
  if (problem_.has_bias) {
    const int bytes = format_of(dtype_of(problem_.bias_dtype)).bytes;
    sum = load(dtype_of(problem_.bias_dtype),
               static_cast<const std::byte*>(call_.bias.data) + operand_index(call_.bias, b, h, i, j) * bytes);
  }
  if (problem_.has_alibi) {
    const std::int64_t distance = std::abs(i + keys(b) - queries(b) - j);
    sum -= static_cast<double>(call_.alibi_slopes[h]) * static_cast<double>(distance);
  }
  return sum;
}

std::int64_t CallView::element(const attest_tensor& tensor, Side side, std::int64_t b, std::int64_t head,
                               std::int64_t i) const {
  const bool query = side == Side::query;
  if (!query && problem_.page_size > 0) {
    const std::int64_t page = call_.page_table[b * call_.page_table_stride + i / problem_.page_size];
    return page * tensor.stride_batch + i % problem_.page_size * tensor.stride_seq + head * tensor.stride_head;
  }
  if (problem_.layout == ATTEST_THD) {
    const std::int64_t token = (query ? call_.cu_q : call_.cu_k)[b] + i;
    return token * tensor.stride_seq + head * tensor.stride_head;
  }
  const std::int64_t length = query ? queries(b) : keys(b);
  const std::int64_t rows = query ? problem_.rows_q : problem_.rows_k;
  const std::int64_t row = problem_.pad_side == ATTEST_PAD_LEFT ? rows - length + i : i;
  return b * tensor.stride_batch + row * tensor.stride_seq + head * tensor.stride_head;
}

template <typename Real>
void CallView::read(const attest_tensor& tensor, Side side, std::int32_t type, std::int64_t b, std::int64_t head,
                    std::int64_t width, Real* to) const {
  const std::int64_t count = side == Side::query ? queries(b) : keys(b);
  std::vector<double> row(static_cast<std::size_t>(width));
  for (std::int64_t i = 0; i < count; ++i) {
    load_all(dtype_of(type), address(tensor, type, element(tensor, side, b, head, i)), row);
    std::copy(row.begin(), row.end(), to + i * width);
  }
}

template <typename Real>
void CallView::write(const attest_tensor& tensor, Side side, std::int32_t type, std::int64_t b, std::int64_t head,
                     std::int64_t first, std::int64_t count, std::int64_t width, const Real* from) const {
  std::vector<double> row(static_cast<std::size_t>(width));
  for (std::int64_t i = 0; i < count; ++i) {
    // Adding 0 makes -0 into +0: whether a hidden value was multiplied by 0 or left out can only show in that sign.
    for (std::int64_t c = 0; c < width; ++c) row[static_cast<std::size_t>(c)] = from[i * width + c] + Real(0);
    store_all(dtype_of(type), row, address(tensor, type, element(tensor, side, b, head, first + i)));
  }
}

std::int64_t CallView::lse_element(const attest_tensor& tensor, std::int64_t b, std::int64_t h, std::int64_t i) const {
  if (problem_.layout == ATTEST_THD) return h * tensor.stride_head + call_.cu_q[b] + i;
  const std::int64_t row = problem_.pad_side == ATTEST_PAD_LEFT ? problem_.rows_q - queries(b) + i : i;
  return b * tensor.stride_batch + h * tensor.stride_head + row;
}

double CallView::lse(const attest_tensor& tensor, std::int64_t b, std::int64_t h, std::int64_t i) const {
  return load(dtype_of(problem_.lse_dtype), address(tensor, problem_.lse_dtype, lse_element(tensor, b, h, i)));
}

void CallView::write_lse(std::int64_t b, std::int64_t h, std::int64_t i, double value) const {
  store(dtype_of(problem_.lse_dtype), value, address(call_.lse, problem_.lse_dtype, lse_element(call_.lse, b, h, i)));
}

#define ATTEST_INSTANTIATE(Real)                                                                                    \
  template void CallView::read(const attest_tensor&, Side, std::int32_t, std::int64_t, std::int64_t, std::int64_t,  \
                               Real*) const;                                                                        \
  template void CallView::write(const attest_tensor&, Side, std::int32_t, std::int64_t, std::int64_t, std::int64_t, \
                                std::int64_t, std::int64_t, const Real*) const;
ATTEST_INSTANTIATE(float)
ATTEST_INSTANTIATE(double)
#undef ATTEST_INSTANTIATE

}  // namespace attest

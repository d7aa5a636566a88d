// SPDX-License-Identifier: Apache-2.0
// NaN and infinities of tensors: where, and whether the mask lets them be seen.
#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "reference/diagnose/stages.h"
#include "reference/oracle/visibility.h"
#include "reference/verify/verdict.h"

namespace attest::diagnose {
namespace {

constexpr std::size_t kKeptRows = 256;
constexpr std::int64_t kQueriesAsked = 4096;  // per key, to see whether it is visible

/// Elements of the row whose exponent bits are all set. 8-bit types are decoded.
template <typename Word>
std::int64_t count_special(const std::byte* row, std::int64_t width, Word exponent) {
  std::int64_t count = 0;
  for (std::int64_t c = 0; c < width; ++c) {
    Word word;
    std::memcpy(&word, row + c * static_cast<std::int64_t>(sizeof word), sizeof word);
    count += (word & exponent) == exponent;
  }
  return count;
}

std::int64_t count_special(Dtype type, const std::byte* row, std::int64_t width) {
  switch (type) {
    case Dtype::f64: return count_special<std::uint64_t>(row, width, 0x7FF0000000000000);
    case Dtype::f32: return count_special<std::uint32_t>(row, width, 0x7F800000);
    case Dtype::f16: return count_special<std::uint16_t>(row, width, 0x7C00);
    case Dtype::bf16: return count_special<std::uint16_t>(row, width, 0x7F80);
    default: break;
  }
  std::int64_t count = 0;
  for (std::int64_t c = 0; c < width; ++c) count += !std::isfinite(load(type, row + c));
  return count;
}

bool key_is_seen(const Evidence& e, std::int64_t b, std::int64_t head_kv, std::int64_t j) {
  const Problem& p = e.problem;
  for (std::int64_t h = head_kv * p.group(); h < (head_kv + 1) * p.group(); ++h) {
    const std::int64_t step = std::max<std::int64_t>(1, p.seq_q[b] / kQueriesAsked);
    for (std::int64_t i = p.seq_q[b] - 1; i >= 0; i -= step) {
      if (!visible(p, e.operands, b, h, i, j)) continue;
      if (p.bias && e.operands.bias.at(b, h, i, j) == -HUGE_VAL) continue;
      return true;
    }
  }
  return false;
}

void check_tensor(const Evidence& e, TensorId id, Lines& lines) {
  const TensorRows& tensor = e.of(id);
  if (!tensor.present()) return;
  const NonFinite found = find_non_finite(tensor, e.problem.layout);
  if (found.nan + found.infinite == 0) return;
  const bool query = is_query_side(id);
  std::int64_t seen = 0, unseen = 0, padding = 0;
  std::string first_seen;
  for (const NonFinite::Row& at : found.rows) {
    RowAt token;
    if (!token_of(e.problem, query, at, token)) {
      ++padding;
    } else if (query || key_is_seen(e, token.b, token.h, token.i)) {
      if (seen++ == 0) first_seen = print_place({token.b, token.h, token.i, at.column});
    } else {
      ++unseen;
    }
  }
  const std::string part = found.all_rows > static_cast<std::int64_t>(found.rows.size()) ? fmt::format(" (of {} rows looked at)", found.rows.size()) : "";
  const std::string counts = fmt::format("{} has {} NaN and {} infinities in {} rows: {} visible, {} hidden by the mask, {} in padding{}", name_of(id), found.nan, found.infinite, found.all_rows, seen, unseen, padding, part);
  lines.push_back({"non-finite", seen > 0 ? Level::fault : Level::note, seen > 0 ? fmt::format("{}; first at {}", counts, first_seen) : counts,
                   seen > 0 ? "look upstream: rows that see them are NaN, as they must be" : "no result may depend on them: skip hidden keys instead of multiplying by 0"});
}

}  // namespace

bool token_of(const Problem& p, bool query_side, const NonFinite::Row& row, RowAt& at) {
  const auto& lengths = query_side ? p.seq_q : p.seq_k;
  const TensorId id = query_side ? TensorId::q : TensorId::k;
  const std::int64_t from = p.layout == Layout::thd ? 0 : row.b, to = p.layout == Layout::thd ? p.batch() : row.b + 1;
  for (std::int64_t b = from; b < to; ++b) {
    at = {b, row.h, row.row - row_of_token(p, id, b, 0)};
    if (at.i >= 0 && at.i < lengths[b]) return true;
  }
  return false;
}

NonFinite find_non_finite(const TensorRows& tensor, Layout layout) {
  NonFinite found;
  const Extents& e = tensor.extents();
  const Strides& s = tensor.strides();
  const int bytes = format_of(tensor.type()).bytes;
  // In the order of memory.
  const bool head_first = layout == Layout::bhsd;
  const std::int64_t outer = head_first ? e.heads : e.rows, inner = head_first ? e.rows : e.heads;
  std::int64_t spacing = 1;
  for (std::int64_t b = 0; b < e.batch; ++b) {
    for (std::int64_t x = 0; x < outer; ++x) {
      for (std::int64_t y = 0; y < inner; ++y) {
        const std::int64_t row = head_first ? y : x, h = head_first ? x : y;
        if (!tensor.has_row(b, row)) continue;
        std::vector<double> held;
        const std::byte* data = tensor.data() + (b * s.batch + row * s.seq + h * s.head) * bytes;
        if (tensor.by_token()) {
          held.resize(static_cast<std::size_t>(e.width));
          tensor.read(b, row, h, held);
          data = reinterpret_cast<const std::byte*>(held.data());
        }
        if (count_special(tensor.type(), data, e.width) == 0) continue;
        std::int64_t column = -1;
        for (std::int64_t c = 0; c < e.width; ++c) {
          const double value = load(tensor.type(), data + c * bytes);
          if (std::isfinite(value)) continue;
          if (column < 0) column = c;
          (std::isnan(value) ? found.nan : found.infinite) += 1;
        }
        if (column < 0) continue;
        if (found.all_rows++ % spacing != 0) continue;
        found.rows.push_back({b, row, h, column});
        if (found.rows.size() < 2 * kKeptRows) continue;
        // Every second one goes, and from now on rows are kept half as often.
        for (std::size_t n = 0; n < kKeptRows; ++n) found.rows[n] = found.rows[2 * n];
        found.rows.resize(kKeptRows);
        spacing *= 2;
      }
    }
  }
  return found;
}

void check_non_finite_inputs(const Evidence& evidence, Lines& lines) {
  const std::size_t before = lines.size();
  for (const TensorId id : {TensorId::q, TensorId::k, TensorId::v, TensorId::d_o}) check_tensor(evidence, id, lines);
  if (evidence.d_lse.present()) {
    const NonFinite found = find_non_finite(evidence.d_lse, Layout::bhsd);
    RowAt token;
    const auto real = std::find_if(found.rows.begin(), found.rows.end(), [&](const NonFinite::Row& at) { return token_of(evidence.problem, true, at, token); });
    if (real != found.rows.end()) lines.push_back({"non-finite", Level::fault, fmt::format("dlse has {} NaN and {} infinities; first at {}", found.nan, found.infinite, print_place({token.b, token.h, token.i, -1})), "look upstream: the gradients of their rows are NaN, as they must be"});
  }
  std::int64_t nan = 0, positive = 0;
  for (const double x : evidence.operands.bias.data) {
    nan += std::isnan(x);
    positive += x == HUGE_VAL;
  }
  if (nan + positive > 0) lines.push_back({"non-finite", Level::fault, fmt::format("the bias has {} NaN and {} +inf", nan, positive), "a bias hides with -inf; anything else not finite makes its rows NaN"});
  if (lines.size() == before) lines.push_back({"non-finite", Level::ok, "all inputs are finite", ""});
}

}  // namespace attest::diagnose

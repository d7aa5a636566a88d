// SPDX-License-Identifier: Apache-2.0
#include "reference/diagnose/tracer.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "reference/oracle/visibility.h"
#include "reference/verify/verdict.h"

namespace attest::diagnose {
namespace {

constexpr double kFloatMax = 3.4028e38;
constexpr double kHeadWork = 1e9;           // multiply-adds over the heads whose dk and dv are computed
constexpr std::int64_t kQueriesAsked = 512;  // of each head, for a key
constexpr std::int64_t kRowsAsked = 16;      // whose scores are computed, where the forward is not in the evidence
constexpr std::int64_t kSharedRows = 256;    // of those that share a row of dbias

bool all_finite(std::span<const double> x) {
  return std::all_of(x.begin(), x.end(), [](double v) { return std::isfinite(v); });
}

/// What is stored where a value of this size is wanted is not finite.
bool wants_non_finite(double value, Dtype type) { return !std::isfinite(value) || std::abs(value) > format_of(type).max; }

std::string place_of(const RowAt& at) { return print_place({at.b, at.h, at.i, -1}); }

}  // namespace

Tracer::Tracer(const Evidence& evidence) : e_(evidence), p_(evidence.problem), evaluator_(evidence), contract_(contract_reading(evidence.problem)) {}

/// Every byte of the element is 0xFF, which no arithmetic leaves.
bool Tracer::unwritten(const TensorRows& tensor, const NonFinite::Row& at) const {
  if (tensor.by_token() || tensor.type() == Dtype::f64) return false;  // values, not storage: the verdict has that finding
  const Strides& s = tensor.strides();
  const int bytes = format_of(tensor.type()).bytes;
  const std::byte* data = tensor.data() + (at.b * s.batch + at.row * s.seq + at.h * s.head + at.column) * bytes;
  return std::all_of(data, data + bytes, [](std::byte b) { return b == std::byte{0xFF}; });
}

Cause Tracer::of_query_row(TensorId id, bool lse, const NonFinite::Row& found, const RowAt& at) const {
  const TensorRows& tensor = lse ? e_.lse : e_.of(id);
  if (unwritten(tensor, found)) return {"unwritten memory: it holds the pre-fill, bytes of 0xFF", "the row is never stored: check the grid and the bounds of the store"};
  std::vector<double> got(static_cast<std::size_t>(tensor.extents().width));
  tensor.read(at.b, found.row, at.h, got);
  const SoftRow row = evaluator_.soft_row(contract_, at);
  if (row.empty && lse && std::isinf(got[0])) return got[0] < 0 ? Cause{"-inf of a row that sees no key", "", true} : Cause{"+inf of a row that sees no key (FlashAttention's convention)", "store -inf, or declare empty_lse"};
  if (row.empty) return {"a row that sees no key: 0 / 0, the NaN convention", "write 0 where the sum of weights is 0"};
  const RowResult exact = evaluator_.row({&contract_, &contract_, false}, at, id == TensorId::dq);
  const Elements& want = lse ? exact.lse : id == TensorId::dq ? exact.dq : exact.o;
  const double value = want.known ? want.value[static_cast<std::size_t>(found.column)] : 0;
  Cause cause = of_row(id, lse, row, at, found.column, value);
  if (want.known) cause.right = wants_non_finite(value, lse ? p_.lse_dtype() : p_.output_dtype());
  return cause;
}

Cause Tracer::of_row(TensorId id, bool lse, const SoftRow& row, const RowAt& at, std::int64_t column, double value) const {
  const bool gradient = id == TensorId::dq && !lse;
  if (Cause cause = of_inputs(row, at, gradient); !cause.what.empty()) return cause;
  if (Cause cause = of_keys(row, at, id, lse, column); !cause.what.empty()) return cause;
  if (gradient) {
    if (Cause cause = of_forward(at); !cause.what.empty()) return cause;
  }
  if (!lse && std::abs(value) > format_of(p_.output_dtype()).max) return {fmt::format("overflow of {}: the exact value is {:.4g}", name_of(p_.output_dtype()), value), "use an output type with more range", true};
  return of_range(row);
}

/// The row's own q, dO and dLSE.
Cause Tracer::of_inputs(const SoftRow& row, const RowAt& at, bool gradient) const {
  if (!all_finite(row.q)) return {"NaN or infinity in the row's own q", "look upstream", true};
  if (!gradient) return {};
  std::vector<double> d_o(static_cast<std::size_t>(p_.width_v()), 0);
  const std::int64_t token_row = row_of_token(p_, TensorId::d_o, at.b, at.i);
  e_.of(TensorId::d_o).read(at.b, token_row, at.h, d_o);
  if (!all_finite(d_o)) return {"NaN or infinity in the row's own dO", "look upstream", true};
  double d_lse = 0;
  if (e_.d_lse.present()) e_.d_lse.read(at.b, token_row, at.h, {&d_lse, 1});
  if (!std::isfinite(d_lse)) return {"NaN or infinity in the row's own dLSE", "look upstream", true};
  return {};
}

/// The backward of a row whose captured O or LSE is not finite already.
Cause Tracer::of_forward(const RowAt& at) const {
  const std::int64_t row = row_of_token(p_, TensorId::o, at.b, at.i);
  double lse = 0;
  if (e_.lse.present()) e_.lse.read(at.b, row, at.h, {&lse, 1});
  if (std::isnan(lse) || lse == HUGE_VAL) return {fmt::format("LSE of the forward is {} there, such as {}", lse, place_of(at)), "see the lines of lse and o"};
  std::vector<double> o(static_cast<std::size_t>(p_.width_v()), 0);
  if (e_.of(TensorId::o).present()) e_.of(TensorId::o).read(at.b, row, at.h, o);
  if (!all_finite(o)) return {fmt::format("O of the forward is not finite there, such as {}: delta = <dO, O> is NaN", place_of(at)), "see the line of o"};
  return {};
}

Cause Tracer::of_keys(const SoftRow& row, const RowAt& at, TensorId id, bool lse, std::int64_t column) const {
  std::string hidden;
  std::vector<double> k(static_cast<std::size_t>(p_.dim)), v(static_cast<std::size_t>(p_.width_v()));
  for (std::int64_t j = 0; j < static_cast<std::int64_t>(row.score.size()); ++j) {
    const std::int64_t key_row = row_of_token(p_, TensorId::k, at.b, j), head = at.h / p_.group();
    e_.of(TensorId::k).read(at.b, key_row, head, k);
    e_.of(TensorId::v).read(at.b, key_row, head, v);
    const double score = row.score[static_cast<std::size_t>(j)];
    const bool seen = score != -HUGE_VAL;
    const bool v_matters = !lse && (id == TensorId::dq ? !all_finite(v) : !std::isfinite(v[static_cast<std::size_t>(column)]));
    if (seen && !all_finite(k)) return {fmt::format("visible key {} has NaN or infinity in k", place_of({at.b, head, j})), "look upstream, or mask the key", true};
    if (seen && v_matters) return {fmt::format("visible key {} has NaN or infinity in v", place_of({at.b, head, j})), "look upstream, or mask the key", true};
    if (std::isnan(score)) return {fmt::format("the bias of key {} is NaN", j), "look upstream", true};
    if (score == HUGE_VAL) return {fmt::format("the score of key {} is +inf", j), "look upstream: q, k or bias is infinite", true};
    if (seen && std::abs(score) > kFloatMax) return {fmt::format("the score of key {}, {:.3g}, overflows float32", j, score), "scale q and k down"};
    if (!seen && hidden.empty() && (!all_finite(k) || v_matters)) hidden = place_of({at.b, head, j});
  }
  if (!hidden.empty()) return {fmt::format("0 * NaN from a key that the mask hides, {}", hidden), "set hidden scores to -inf and skip their v, instead of adding or multiplying"};
  return {};
}

Cause Tracer::of_range(const SoftRow& row) const {
  double top = -HUGE_VAL, largest = 0;
  std::size_t first = row.score.size();
  for (std::size_t j = 0; j < row.score.size(); ++j) {
    if (row.score[j] == -HUGE_VAL) continue;
    first = std::min(first, j);
    top = std::max(top, row.score[j]);
    largest = std::max(largest, std::abs(row.score[j]));
  }
  const bool half = p_.dtype == Dtype::f16;
  const double product = p_.effective_scale() == 0 ? 0 : largest / std::abs(p_.effective_scale());
  if (first >= 16) return {fmt::format("the first {} keys are hidden: a running maximum of -inf gives exp(-inf + inf)", first), "skip tiles that are hidden whole, or guard the subtraction"};
  if (top > 88.72) return {fmt::format("exp({:.4g}) overflows float32 where the maximum is not subtracted", top), "subtract the row's maximum"};
  if (half && p_.softcap == 0 && !p_.bias && !p_.alibi && product > 65504) return {fmt::format("<q, k> = {:.4g} overflows float16", product), "keep scores in float32"};
  if (half && top > 11.09) return {fmt::format("exp({:.4g}) overflows float16 where the maximum is not subtracted", top), "subtract the row's maximum"};
  if (top < -103.97) return {fmt::format("every weight exp(s) vanishes (best score {:.4g}) where the maximum is not subtracted: 0 / 0", top), "subtract the row's maximum"};
  return {"none of the known causes", ""};
}

bool Tracer::exact_of_key(TensorId id, const RowAt& at, std::int64_t column, double& value) const {
  const std::lock_guard lock(mutex_);
  auto& head = heads_[{at.b, at.h}];
  if (head == nullptr) {
    const double own = static_cast<double>(p_.seq_q[at.b] * p_.seq_k[at.b]) * static_cast<double>(p_.group() * (p_.dim + p_.width_v()));
    if (head_work_ + own > kHeadWork) return false;
    head_work_ += own;
    head = std::make_shared<const ColumnResult>(evaluator_.columns({&contract_, &contract_, false}, {at.b, at.h}));
  }
  const Elements& want = id == TensorId::dk ? head->dk : head->dv;
  if (!want.known) return false;
  value = want.value[static_cast<std::size_t>(at.i * (id == TensorId::dk ? p_.dim : p_.width_v()) + column)];
  return true;
}

Cause Tracer::of_key_row(TensorId id, const NonFinite::Row& found, const RowAt& at) const {
  if (unwritten(e_.of(id), found)) return {"unwritten memory: it holds the pre-fill, bytes of 0xFF", "keys that no query sees have gradient 0, written"};
  Cause cause = of_queries(id, at);
  double value = 0;
  const bool known = exact_of_key(id, at, found.column, value);
  if (cause.what.empty() && known && std::isfinite(value) && std::abs(value) > format_of(p_.output_dtype()).max) {
    cause = {fmt::format("overflow of {}: the exact value is {:.4g}", name_of(p_.output_dtype()), value), "use an output type with more range, or scale the loss down"};
  }
  if (cause.what.empty()) {
    std::vector<double> got(static_cast<std::size_t>(e_.of(id).extents().width));
    e_.of(id).read(at.b, found.row, at.h, got);
    if (std::isinf(got[static_cast<std::size_t>(found.column)])) {
      cause = {known ? fmt::format("overflow on the way: the exact value, {:.4g}, is within {}", value, name_of(p_.output_dtype())) : fmt::format("overflow of {} or of a partial sum", name_of(p_.output_dtype())), "accumulate in float32; scale the loss down"};
    } else {
      cause = {"none of the known causes", ""};
    }
  }
  if (known) cause.right = wants_non_finite(value, p_.output_dtype());
  return cause;
}

/// What reaches a key from the queries that see it, or that it should be hidden from.
Cause Tracer::of_queries(TensorId id, const RowAt& at) const {
  const auto [b, head_kv, j] = at;
  const std::int64_t step = std::max<std::int64_t>(1, p_.seq_q[b] / kQueriesAsked);
  std::vector<double> own(static_cast<std::size_t>(p_.dim)), other(static_cast<std::size_t>(p_.width_v()));
  const std::int64_t key_row = row_of_token(p_, TensorId::k, b, j);
  e_.of(TensorId::k).read(b, key_row, head_kv, own);
  e_.of(TensorId::v).read(b, key_row, head_kv, other);
  // v enters dP, and so dK, but not dV.
  const char* bad_input = !all_finite(own) ? "k" : id == TensorId::dk && !all_finite(other) ? "v" : nullptr;
  bool empty_row = false, is_seen = false;
  std::string hidden;
  Cause forward;
  std::int64_t asked = 0;
  for (std::int64_t h = head_kv * p_.group(); h < (head_kv + 1) * p_.group(); ++h) {
    for (std::int64_t i = 0; i < p_.seq_q[b]; i += step) {
      SoftRow row;
      row.q.resize(static_cast<std::size_t>(p_.dim));
      e_.of(TensorId::q).read(b, row_of_token(p_, TensorId::q, b, i), h, row.q);
      const Cause input = of_inputs(row, {b, h, i}, true);
      const bool seen = visible(p_, e_.operands, b, h, i, j) && !(p_.bias && e_.operands.bias.at(b, h, i, j) == -HUGE_VAL);
      is_seen |= seen;
      if (!input.what.empty() && seen) return {fmt::format("NaN or infinity in q, dO or dLSE of a query that sees the key, such as {}", place_of({b, h, i})), "look upstream", true};
      if (!input.what.empty() && hidden.empty()) hidden = place_of({b, h, i});
      if (seen && forward.what.empty()) forward = of_forward({b, h, i});
      if (seen && forward.what.empty() && !e_.lse.present() && asked++ < kRowsAsked) {
        const SoftRow soft = evaluator_.soft_row(contract_, {b, h, i});
        if (!std::isfinite(soft.lse) || !all_finite(soft.o)) forward = {fmt::format("the forward of a query that sees the key, {}, is not finite", place_of({b, h, i})), "capture o and lse to see why", true};
      }
      const KeyRange range = key_range(p_, b, i);
      empty_row |= range.first >= range.last;
    }
  }
  if (bad_input != nullptr && is_seen) return {fmt::format("NaN or infinity in the key's own {}, which queries see", bad_input), "look upstream, or mask the key", true};
  if (!forward.what.empty()) return forward;
  if (bad_input != nullptr) return {fmt::format("0 * NaN from the key's own {}, which no query sees", bad_input), "skip hidden keys instead of multiplying by 0"};
  if (!hidden.empty()) return {fmt::format("0 * NaN from q, dO or dLSE of a query that does not see the key, {}", hidden), "skip hidden pairs instead of multiplying by 0"};
  if (empty_row) return {"rows that see no key: exp(-inf - -inf) adds NaN to every key", "P of a row without keys is 0"};
  return {};
}

Cause Tracer::of_bias_row(const NonFinite::Row& found) const {
  if (unwritten(e_.d_bias, found)) return {"unwritten memory: it holds the pre-fill, bytes of 0xFF", "pairs that the mask hides have gradient 0, written"};
  const Extents& shape = e_.d_bias.extents();
  std::string empty_row;
  std::int64_t asked = 0;
  for (std::int64_t b = shape.batch == 1 ? 0 : found.b; b < (shape.batch == 1 ? p_.batch() : found.b + 1); ++b) {
    for (std::int64_t h = shape.heads == 1 ? 0 : found.h; h < (shape.heads == 1 ? p_.heads_q : found.h + 1); ++h) {
      for (std::int64_t i = shape.rows == 1 ? 0 : found.row; i < (shape.rows == 1 ? p_.seq_q[b] : std::min(p_.seq_q[b], found.row + 1)); ++i) {
        if (asked++ >= kSharedRows) return {"none of the known causes, in the rows looked at", ""};
        const RowAt at{b, h, i};
        const SoftRow row = evaluator_.soft_row(contract_, at);
        if (row.empty && empty_row.empty()) empty_row = place_of(at);
        Cause cause = row.empty ? Cause{} : of_inputs(row, at, true);
        if (cause.what.empty() && !row.empty) cause = of_keys(row, at, TensorId::dq, false, 0);
        if (cause.what.empty() && !row.empty) cause = of_forward(at);
        if (!cause.what.empty()) return cause;
      }
    }
  }
  if (!empty_row.empty()) return {fmt::format("a row that sees no key, {}: exp(-inf - -inf)", empty_row), "P of a row without keys is 0"};
  return {"none of the known causes", ""};
}

}  // namespace attest::diagnose

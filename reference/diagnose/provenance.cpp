// SPDX-License-Identifier: Apache-2.0
// From a NaN or an infinity of an output to its cause, by the contract.
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "reference/diagnose/stages.h"
#include "reference/oracle/visibility.h"
#include "reference/verify/verdict.h"

namespace attest::diagnose {
namespace {

constexpr std::size_t kTraced = 128;      // rows of each tensor
constexpr double kFloatMax = 3.4028e38;

bool all_finite(std::span<const double> x) {
  return std::all_of(x.begin(), x.end(), [](double v) { return std::isfinite(v); });
}

struct Cause {
  std::string what, fix;
  bool right = false;  // the contract wants it
};

class Tracer {
 public:
  explicit Tracer(const Evidence& e) : e_(e), p_(e.problem), evaluator_(e), contract_(contract_reading(e.problem)) {}

  Cause of_query_row(TensorId id, bool lse, const NonFinite::Row& found, const RowAt& at) {
    std::vector<double> got(static_cast<std::size_t>(rows(id, lse).extents().width));
    rows(id, lse).read(at.b, row_of_token(p_, id, at.b, at.i), at.h, got);
    if (unwritten(rows(id, lse), found)) return {"unwritten memory: every byte is 0xFF, as Attest fills outputs", "the row is never stored: check the grid and the bounds of the store"};
    const SoftRow row = evaluator_.soft_row(contract_, at);
    if (row.empty && lse && std::isinf(got[0])) return got[0] < 0 ? Cause{"-inf of a row that sees no key", "", true} : Cause{"+inf of a row that sees no key (FlashAttention's convention)", "store -inf, or declare empty_lse"};
    if (row.empty) return {"a row that sees no key: 0 / 0, the NaN convention", "write 0 where the sum of weights is 0"};
    if (!all_finite(row.q)) return {"NaN or infinity in the row's own q", "look upstream", true};
    if (id == TensorId::dq) {
      std::vector<double> other(static_cast<std::size_t>(p_.width_v()));
      e_.of(TensorId::d_o).read(at.b, row_of_token(p_, TensorId::d_o, at.b, at.i), at.h, other);
      if (!all_finite(other)) return {"NaN or infinity in the row's own dO", "look upstream", true};
      if (const Cause cause = of_forward(at); !cause.what.empty()) return cause;
    }
    if (const Cause cause = of_keys(row, at, id, lse, found.column); !cause.what.empty()) return cause;
    const double largest = format_of(p_.output_dtype()).max;
    if (!lse && id == TensorId::o && std::abs(row.o[static_cast<std::size_t>(found.column)]) > largest) return {fmt::format("overflow of {}: the exact value is {:.4g}", name_of(p_.output_dtype()), row.o[static_cast<std::size_t>(found.column)]), "use an output type with more range", true};
    return of_range(row);
  }

  Cause of_key_row(TensorId id, const NonFinite::Row& found, std::int64_t b, std::int64_t head_kv, std::int64_t j) {
    if (unwritten(e_.of(id), found)) return {"unwritten memory: every byte is 0xFF, as Attest fills outputs", "keys that no query sees have gradient 0, written"};
    bool empty_row = false;
    std::vector<double> q(static_cast<std::size_t>(p_.dim)), d_o(static_cast<std::size_t>(p_.width_v()));
    for (std::int64_t h = head_kv * p_.group(); h < (head_kv + 1) * p_.group(); ++h) {
      const std::int64_t step = std::max<std::int64_t>(1, p_.seq_q[b] / 512);
      for (std::int64_t i = 0; i < p_.seq_q[b]; i += step) {
        const std::int64_t row = row_of_token(p_, TensorId::q, b, i);
        e_.of(TensorId::q).read(b, row, h, q);
        e_.of(TensorId::d_o).read(b, row, h, d_o);
        const bool seen = visible(p_, e_.operands, b, h, i, j);
        const bool bad = !all_finite(q) || !all_finite(d_o);
        const std::string place = print_place({b, h, i, -1});
        if (bad && seen) return {fmt::format("NaN or infinity in q or dO of a query that sees the key, such as {}", place), "look upstream", true};
        if (bad) return {fmt::format("0 * NaN from q or dO of a query that does not see the key, {}", place), "skip hidden pairs instead of multiplying by 0"};
        if (seen) {
          const Cause forward = of_forward({b, h, i});
          if (!forward.what.empty()) return forward;
        }
        const KeyRange range = key_range(p_, b, i);
        empty_row |= range.first >= range.last;
      }
    }
    std::vector<double> own(static_cast<std::size_t>(id == TensorId::dk ? p_.dim : p_.width_v()));
    for (const TensorId input : {TensorId::k, TensorId::v}) {
      own.resize(static_cast<std::size_t>(e_.of(input).extents().width));
      e_.of(input).read(b, row_of_token(p_, TensorId::k, b, j), head_kv, own);
      if (!all_finite(own)) return {fmt::format("NaN or infinity in the key's own {}", name_of(input)), "look upstream"};
    }
    if (empty_row) return {"rows that see no key: exp(-inf - -inf) adds NaN to every key", "P of a row without keys is 0"};
    std::vector<double> value(static_cast<std::size_t>(e_.of(id).extents().width));
    e_.of(id).read(b, row_of_token(p_, id, b, j), head_kv, value);
    if (std::isinf(value[static_cast<std::size_t>(found.column)])) return {fmt::format("overflow of {} or of a partial sum", name_of(p_.output_dtype())), "accumulate in float32; scale the loss down"};
    return {"none of the known causes", ""};
  }

 private:
  const TensorRows& rows(TensorId id, bool lse) const { return lse ? e_.lse : e_.of(id); }

  bool unwritten(const TensorRows& tensor, const NonFinite::Row& at) const {
    if (tensor.by_token()) return false;  // values, not storage: the verdict has that finding
    const Strides& s = tensor.strides();
    const int bytes = format_of(tensor.type()).bytes;
    const std::byte* data = tensor.data() + (at.b * s.batch + at.row * s.seq + at.h * s.head) * bytes;
    return std::all_of(data, data + tensor.extents().width * bytes, [](std::byte b) { return b == std::byte{0xFF}; });
  }

  /// The backward of a row whose O or LSE is not finite already.
  Cause of_forward(const RowAt& at) const {
    const std::int64_t row = row_of_token(p_, TensorId::o, at.b, at.i);
    double lse = 0;
    if (e_.lse.present()) e_.lse.read(at.b, row, at.h, {&lse, 1});
    if (std::isnan(lse) || lse == HUGE_VAL) return {fmt::format("LSE of the forward is {} there, such as {}", lse, print_place({at.b, at.h, at.i, -1})), "see the lines of lse and o"};
    std::vector<double> o(static_cast<std::size_t>(p_.width_v()), 0);
    if (e_.of(TensorId::o).present()) e_.of(TensorId::o).read(at.b, row, at.h, o);
    if (!all_finite(o)) return {fmt::format("O of the forward is not finite there, such as {}: delta = <dO, O> is NaN", print_place({at.b, at.h, at.i, -1})), "see the line of o"};
    return {};
  }

  Cause of_keys(const SoftRow& row, const RowAt& at, TensorId id, bool lse, std::int64_t column) const {
    std::string hidden;
    std::vector<double> k(static_cast<std::size_t>(p_.dim)), v(static_cast<std::size_t>(p_.width_v()));
    for (std::int64_t j = 0; j < static_cast<std::int64_t>(row.score.size()); ++j) {
      const std::int64_t key_row = row_of_token(p_, TensorId::k, at.b, j), head = at.h / p_.group();
      e_.of(TensorId::k).read(at.b, key_row, head, k);
      e_.of(TensorId::v).read(at.b, key_row, head, v);
      const double score = row.score[static_cast<std::size_t>(j)];
      const bool seen = score != -HUGE_VAL;
      const bool v_matters = !lse && (id == TensorId::dq ? !all_finite(v) : !std::isfinite(v[static_cast<std::size_t>(column)]));
      if (seen && !all_finite(k)) return {fmt::format("visible key {} has NaN or infinity in k", print_place({at.b, head, j, -1})), "look upstream, or mask the key", true};
      if (seen && v_matters) return {fmt::format("visible key {} has NaN or infinity in v", print_place({at.b, head, j, -1})), "look upstream, or mask the key", true};
      if (std::isnan(score)) return {fmt::format("the bias of key {} is NaN", j), "look upstream", true};
      if (score == HUGE_VAL) return {fmt::format("the score of key {} is +inf", j), "look upstream: q, k or bias is infinite", true};
      if (seen && std::abs(score) > kFloatMax) return {fmt::format("the score of key {}, {:.3g}, overflows float32", j, score), "scale q and k down"};
      if (!seen && hidden.empty() && (!all_finite(k) || v_matters)) hidden = print_place({at.b, head, j, -1});
    }
    if (!hidden.empty()) return {fmt::format("0 * NaN from a key that the mask hides, {}", hidden), "set hidden scores to -inf and skip their v, instead of adding or multiplying"};
    return {};
  }

  Cause of_range(const SoftRow& row) const {
    double top = -HUGE_VAL, largest = 0;
    std::size_t first = row.score.size();
    for (std::size_t j = 0; j < row.score.size(); ++j) {
      if (row.score[j] == -HUGE_VAL) continue;
      first = std::min(first, j);
      top = std::max(top, row.score[j]);
      largest = std::max(largest, std::abs(row.score[j]));
    }
    if (first >= 16) return {fmt::format("the first {} keys are hidden: a running maximum of -inf gives exp(-inf + inf)", first), "skip tiles that are hidden whole, or guard the subtraction"};
    if (top > 88.72) return {fmt::format("exp({:.4g}) overflows float32 where the maximum is not subtracted", top), "subtract the row's maximum"};
    if (p_.dtype == Dtype::f16 && p_.softcap == 0 && largest > 65504 * std::abs(p_.effective_scale())) return {fmt::format("<q, k> = {:.4g} overflows float16", largest / std::abs(p_.effective_scale())), "keep scores in float32"};
    if (p_.dtype == Dtype::f16 && top > 11.09) return {fmt::format("exp({:.4g}) overflows float16 where the maximum is not subtracted", top), "subtract the row's maximum"};
    if (top < -103.97) return {fmt::format("every weight exp(s) vanishes (best score {:.4g}) where the maximum is not subtracted: 0 / 0", top), "subtract the row's maximum"};
    return {"none of the known causes", ""};
  }

  const Evidence& e_;
  const Problem& p_;
  Evaluator evaluator_;
  Reading contract_;
};

void trace(const Evidence& e, TensorId id, bool lse, Tracer& tracer, Lines& lines) {
  const TensorRows& tensor = lse ? e.lse : e.of(id);
  if (!tensor.present()) return;
  const Problem& p = e.problem;
  const NonFinite found = find_non_finite(tensor, lse ? Layout::bhsd : p.layout);
  if (found.nan + found.infinite == 0) return;
  struct Group {
    Cause cause;
    std::int64_t rows = 0;
    std::string first;
  };
  std::map<std::string, Group> groups;
  std::int64_t traced = 0, padding = 0;
  const std::size_t step = std::max<std::size_t>(1, found.rows.size() / kTraced);
  for (std::size_t n = 0; n < found.rows.size(); n += step) {
    const NonFinite::Row& at = found.rows[n];
    // A row of a packed tensor belongs to the sequence that holds it.
    const bool query = lse || is_query_side(id);
    const auto& lengths = query ? p.seq_q : p.seq_k;
    std::int64_t b = p.layout == Layout::thd ? 0 : at.b, i = -1;
    for (; b < (p.layout == Layout::thd ? p.batch() : at.b + 1); ++b) {
      i = at.row - row_of_token(p, query ? TensorId::q : TensorId::k, b, 0);
      if (i >= 0 && i < lengths[b]) break;
      i = -1;
    }
    if (i < 0) {
      ++padding;
      continue;
    }
    ++traced;
    Cause cause = query ? tracer.of_query_row(id, lse, at, {b, at.h, i}) : tracer.of_key_row(id, at, b, at.h, i);
    // Causes that name a place are one kind.
    std::string kind = cause.what.substr(0, cause.what.find_first_of("[0123456789", 4));
    Group& group = groups[kind];
    if (group.rows++ == 0) group = {std::move(cause), 1, print_place({b, at.h, i, lse ? -1 : at.column})};
  }
  const std::string name = lse ? "lse" : std::string(name_of(id));
  const bool only_right = std::all_of(groups.begin(), groups.end(), [](const auto& g) { return g.second.cause.right; });
  if (groups.empty()) return;
  lines.push_back({"nan", only_right ? Level::note : Level::fault, fmt::format("{} has {} NaN and {} infinities in {} rows{}", name, found.nan, found.infinite, found.all_rows, traced + padding < found.all_rows ? fmt::format("; {} traced", traced) : ""), ""});
  for (const auto& [kind, group] : groups) {
    lines.push_back({"nan", group.cause.right ? Level::note : Level::fault, fmt::format("  {} of {} rows of {}, first {}: {}{}", group.rows, traced, name, group.first, group.cause.what, group.cause.right ? " (as the contract has it)" : ""), group.cause.fix});
  }
}

}  // namespace

void trace_non_finite_outputs(const Evidence& evidence, Lines& lines) {
  const std::size_t before = lines.size();
  Tracer tracer(evidence);
  trace(evidence, TensorId::o, false, tracer, lines);
  trace(evidence, TensorId::o, true, tracer, lines);
  for (const TensorId id : {TensorId::dq, TensorId::dk, TensorId::dv}) trace(evidence, id, false, tracer, lines);
  if (lines.size() == before && (evidence.has_forward() || evidence.has_gradients())) lines.push_back({"nan", Level::ok, "all outputs are finite", ""});
}

}  // namespace attest::diagnose

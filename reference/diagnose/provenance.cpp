// SPDX-License-Identifier: Apache-2.0
// NaN and infinities of the outputs, grouped by their causes.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "reference/diagnose/stages.h"
#include "reference/diagnose/tracer.h"
#include "reference/verify/verdict.h"

namespace attest::diagnose {
namespace {

constexpr std::size_t kTraced = 128;  // rows of each tensor

/// Rows of one output with the same kind of cause.
struct Group {
  Cause cause;
  std::int64_t rows = 0;
  std::string first;
};

struct Traced {
  bool padding = false;
  Cause cause;
  std::string place;
};

void say(const std::string& name, const NonFinite& found, const std::vector<Traced>& traced, Lines& lines) {
  std::map<std::pair<bool, std::string>, Group> groups;
  std::int64_t count = 0, padding = 0;
  for (const Traced& one : traced) {
    if (one.padding) {
      ++padding;
      continue;
    }
    ++count;
    // Causes that name a place or a value are one kind.
    Group& group = groups[{one.cause.right, one.cause.what.substr(0, one.cause.what.find_first_of("[0123456789", 4))}];
    if (group.rows++ == 0) group = {one.cause, 1, one.place};
  }
  if (groups.empty()) return;
  const bool all_right = std::all_of(groups.begin(), groups.end(), [](const auto& g) { return g.second.cause.right; });
  lines.push_back({"nan", all_right ? Level::note : Level::fault, fmt::format("{} has {} NaN and {} infinities in {} rows{}", name, found.nan, found.infinite, found.all_rows, count + padding < found.all_rows ? fmt::format("; {} traced", count) : ""), ""});
  for (const auto& [kind, group] : groups) {
    lines.push_back({"nan", group.cause.right ? Level::note : Level::fault, fmt::format("  {} of {} rows of {}, first {}: {}{}", group.rows, count, name, group.first, group.cause.what, group.cause.right ? " (as the contract has it)" : ""), group.cause.fix});
  }
}

/// `cause_of(row, at)` of the rows found, or of some spread over them.
template <typename CauseOf>
void trace(const Evidence& e, const std::string& name, const TensorRows& tensor, TensorId id, bool bhsd, const CauseOf& cause_of, Lines& lines) {
  if (!tensor.present()) return;
  const NonFinite found = find_non_finite(tensor, bhsd ? Layout::bhsd : e.problem.layout);
  if (found.nan + found.infinite == 0) return;
  const std::size_t step = std::max<std::size_t>(1, found.rows.size() / kTraced);
  std::vector<Traced> traced((found.rows.size() + step - 1) / step);
  const auto count = static_cast<std::int64_t>(traced.size());
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t n = 0; n < count; ++n) {
    const NonFinite::Row& row = found.rows[static_cast<std::size_t>(n) * step];
    Traced& one = traced[static_cast<std::size_t>(n)];
    RowAt at{row.b, row.h, row.row};
    one.padding = name != "dbias" && !token_of(e.problem, is_query_side(id), row, at);
    if (one.padding) continue;
    one.cause = cause_of(row, at);
    one.place = print_place({at.b, at.h, at.i, tensor.extents().width == 1 ? -1 : row.column});
  }
  say(name, found, traced, lines);
}

}  // namespace

void trace_non_finite_outputs(const Evidence& evidence, Lines& lines) {
  const std::size_t before = lines.size();
  const Tracer tracer(evidence);
  const auto query = [&](TensorId id, bool lse) { return [&tracer, id, lse](const NonFinite::Row& row, const RowAt& at) { return tracer.of_query_row(id, lse, row, at); }; };
  trace(evidence, "o", evidence.of(TensorId::o), TensorId::o, false, query(TensorId::o, false), lines);
  trace(evidence, "lse", evidence.lse, TensorId::o, true, query(TensorId::o, true), lines);
  trace(evidence, "dq", evidence.of(TensorId::dq), TensorId::dq, false, query(TensorId::dq, false), lines);
  for (const TensorId id : {TensorId::dk, TensorId::dv}) {
    trace(evidence, std::string(name_of(id)), evidence.of(id), id, false, [&tracer, id](const NonFinite::Row& row, const RowAt& at) { return tracer.of_key_row(id, row, at); }, lines);
  }
  trace(evidence, "dbias", evidence.d_bias, TensorId::q, true, [&tracer](const NonFinite::Row& row, const RowAt&) { return tracer.of_bias_row(row); }, lines);
  if (lines.size() == before && (evidence.has_forward() || evidence.has_gradients())) lines.push_back({"nan", Level::ok, "all outputs are finite", ""});
}

}  // namespace attest::diagnose

// SPDX-License-Identifier: Apache-2.0
#include "reference/problem/input_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "reference/problem/input_families.h"
#include "reference/problem/invalid_request.h"
#include "reference/problem/layout.h"
#include "reference/problem/safetensors.h"

namespace attest {
namespace {

using Shape = std::vector<std::int64_t>;

/// The values of a tensor that must exist, have this shape and be exact in `type`.
std::vector<double> exact_values(const SafetensorsFile& file, const std::string& name, const Shape& shape, Dtype type) {
  const std::string needed = fmt::format("a tensor {} of shape [{}] for this problem", name, fmt::join(shape, ", "));
  const StoredTensor* tensor = file.find(name);
  if (tensor == nullptr) throw InvalidRequest(file.name(), "no tensor " + name, needed);
  if (tensor->shape != shape) {
    throw InvalidRequest(file.name(), fmt::format("tensor {} of {}", name, describe(*tensor)), needed);
  }
  std::vector<double> values = values_of(*tensor, file.name());
  for (std::size_t n = 0; n < values.size(); ++n) {
    const double rounded = round_to(type, values[n], Overflow::ieee);
    if (rounded == values[n] || (std::isnan(rounded) && std::isnan(values[n]))) continue;
    throw InvalidRequest(file.name(), fmt::format("tensor {} with {} at element {}", name, values[n], n),
                         fmt::format("values that {} holds exactly", name_of(type)));
  }
  return values;
}

/// Rows that the problem keeps in one place (stride 0) must be equal in the file.
void check_shared_rows(const SafetensorsFile& file, const RowSource& rows, RowPosition at, std::span<const double> row,
                       std::map<RowPosition, std::span<const double>>& first_seen) {
  const auto [entry, is_new] = first_seen.try_emplace(rows.representative(at), row);
  if (is_new || std::equal(row.begin(), row.end(), entry->second.begin())) return;
  throw InvalidRequest(file.name(),
                       fmt::format("tensor {} with other values at [b={}, i={}, h={}] than in the row it shares",
                                   name_of(rows.id()), at.b, at.i, at.h),
                       "equal values along dimensions of stride 0");
}

Values captured(const Problem& problem, const SafetensorsFile& file, TensorId id) {
  const Extents extents = extents_of(problem, id);
  Shape shape = {extents.rows, extents.heads, extents.width};
  if (problem.layout != Layout::thd) shape.insert(shape.begin(), extents.batch);
  const std::vector<double> stored = exact_values(file, std::string(name_of(id)), shape, problem.dtype);

  const RowSource rows(problem, id);
  std::map<RowPosition, std::span<const double>> first_seen;
  const auto& lengths = is_query_side(id) ? problem.seq_q : problem.seq_k;
  Values values(is_query_side(id) ? problem.total_q() : problem.total_k(), extents.heads, extents.width);
  std::int64_t token = 0;
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    const std::int64_t first_row =
        (problem.layout == Layout::thd ? 0 : b * extents.rows) + row_of_token(problem, id, b, 0);
    for (std::int64_t i = 0; i < lengths[static_cast<std::size_t>(b)]; ++i, ++token) {
      for (std::int64_t h = 0; h < extents.heads; ++h) {
        const auto first = static_cast<std::ptrdiff_t>(((first_row + i) * extents.heads + h) * extents.width);
        const std::span<double> row = values.row(token, h);
        std::copy_n(stored.begin() + first, extents.width, row.begin());
        if (rows.has_shared_rows()) check_shared_rows(file, rows, {b, i, h}, row, first_seen);
      }
    }
  }
  return values;
}

/// From [B, Hq, rows] or packed [Hq, rows] to [tokens, Hq].
std::vector<double> captured_d_lse(const Problem& problem, const SafetensorsFile& file) {
  const bool packed = problem.layout == Layout::thd;
  const std::int64_t rows = problem.rows_q();
  Shape shape = {problem.heads_q, rows};
  if (!packed) shape.insert(shape.begin(), problem.batch());
  const std::vector<double> stored = exact_values(file, "dlse", shape, problem.lse_dtype());
  std::vector<double> d_lse;
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    for (std::int64_t i = 0; i < problem.seq_q[static_cast<std::size_t>(b)]; ++i) {
      const std::int64_t row = row_of_token(problem, TensorId::o, b, i);
      for (std::int64_t h = 0; h < problem.heads_q; ++h) {
        const std::int64_t line = packed ? h : b * problem.heads_q + h;
        d_lse.push_back(stored[static_cast<std::size_t>(line * rows + row)]);
      }
    }
  }
  return d_lse;
}

Operand<double> captured_bias(const Problem& problem, const SafetensorsFile& file) {
  const Broadcast& shape = problem.bias->shape;
  Operand<double> bias;
  bias.extent_b = shape.batch ? problem.batch() : 1;
  bias.extent_h = shape.head ? problem.heads_q : 1;
  bias.extent_q = shape.query ? problem.max_q() : 1;
  bias.extent_k = shape.key ? problem.max_k() : 1;
  bias.data =
      exact_values(file, "bias", {bias.extent_b, bias.extent_h, bias.extent_q, bias.extent_k}, problem.bias_dtype());
  return bias;
}

}  // namespace

Inputs read_captured_inputs(const Problem& problem) {
  const SafetensorsFile file = SafetensorsFile::read(problem.fill.path);
  Inputs inputs;
  inputs.q = captured(problem, file, TensorId::q);
  inputs.k = captured(problem, file, TensorId::k);
  inputs.v = captured(problem, file, TensorId::v);
  if (problem.wants_backward() && file.find("do") != nullptr) inputs.d_o = captured(problem, file, TensorId::d_o);
  if (problem.d_lse && file.find("dlse") != nullptr) inputs.d_lse = captured_d_lse(problem, file);
  if (problem.bias && file.find("bias") != nullptr) inputs.bias = captured_bias(problem, file);
  return inputs;
}

}  // namespace attest

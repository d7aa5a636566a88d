// SPDX-License-Identifier: Apache-2.0
// Makes the inputs of a Problem: the rows of q, k, v and d_o from the family, or from a file; then the operands.
#include "reference/problem/inputs.h"

#include "reference/problem/input_families.h"
#include "reference/problem/input_file.h"
#include "reference/problem/input_operands.h"
#include "reference/problem/layout.h"

namespace attest {
namespace {

StreamTag stream_tag(TensorId id) {
  switch (id) {
    case TensorId::q:
      return StreamTag::q;
    case TensorId::k:
      return StreamTag::k;
    case TensorId::v:
      return StreamTag::v;
    default:
      return StreamTag::d_o;
  }
}

Values generate(const Problem& problem, const Family& family, TensorId id) {
  const Extents extents = extents_of(problem, id);
  const RowSource rows(problem, id);
  const RowSource keys(problem, TensorId::k);
  const FillRow fill = fill_row_of(family);
  const double parameter = problem.fill.parameter.value_or(family.default_parameter);
  const auto& lengths = is_query_side(id) ? problem.seq_q : problem.seq_k;
  Values values(is_query_side(id) ? problem.total_q() : problem.total_k(), extents.heads, extents.width);
  std::int64_t token = 0;
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    for (std::int64_t i = 0; i < lengths[static_cast<std::size_t>(b)]; ++i, ++token) {
      for (std::int64_t h = 0; h < extents.heads; ++h) {
        const RowPosition at = rows.representative({b, i, h});
        const std::span<double> row = values.row(token, h);
        fill({problem, keys, parameter, id, at, rows.stream(at), row});
        round_all(problem.dtype, row, Overflow::saturate);  // no input is infinite, however large its family makes it
      }
    }
  }
  return values;
}

}  // namespace

RowSource::RowSource(const Problem& problem, TensorId id)
    : problem_(problem), id_(id), base_(problem.fill.seed, static_cast<std::uint64_t>(stream_tag(id))) {
  const Extents extents = extents_of(problem, id);
  const Strides strides = strides_of(problem, id);
  one_batch_ = strides.batch == 0 && extents.batch > 1;  // packed tensors have a batch extent of 1
  one_row_ = strides.seq == 0 && extents.rows > 1;
  one_head_ = strides.head == 0 && extents.heads > 1;
}

RowPosition RowSource::representative(RowPosition at) const {
  if (one_head_) at.h = 0;
  if (one_batch_) {
    // Sequences share storage rows, which tokens of different lengths meet at different indices if padded left.
    if (problem_.pad == PadSide::left) {
      const auto& lengths = is_query_side(id_) ? problem_.seq_q : problem_.seq_k;
      const std::int64_t longest = is_query_side(id_) ? problem_.max_q() : problem_.max_k();
      at.i += longest - lengths[static_cast<std::size_t>(at.b)];
    }
    at.b = 0;
  }
  if (one_row_) {
    at.i = 0;
    if (problem_.layout == Layout::thd) at.b = 0;
  }
  return at;
}

Inputs make_inputs(const Problem& problem) {
  Inputs inputs;
  const Family& chosen = family(problem.fill.family);
  if (chosen.kind == FamilyKind::captured) {
    inputs = read_captured_inputs(problem);
  } else {
    inputs.q = generate(problem, chosen, TensorId::q);
    inputs.k = generate(problem, chosen, TensorId::k);
    inputs.v = generate(problem, chosen, TensorId::v);
  }
  if (problem.wants_backward() && inputs.d_o.tokens == 0) {
    inputs.d_o = generate(problem, chosen.kind == FamilyKind::captured ? family("normal") : chosen, TensorId::d_o);
  }
  add_operands(problem, inputs);
  return inputs;
}

}  // namespace attest

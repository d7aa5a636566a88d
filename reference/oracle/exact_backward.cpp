// SPDX-License-Identifier: Apache-2.0
// dq, dk and dv. The queries that read one key/value head are cut into spans, which threads take one by one; each
// owns its rows of dq and has its own sums of dk and dv, added up in the order of the spans.
#include <algorithm>

#include "reference/oracle/gradient_tile.h"
#include "reference/oracle/sweep.h"

namespace attest {
namespace {

/// Some row blocks of one key/value head of one sequence.
struct Span {
  std::int64_t b;
  std::int64_t head_kv;
  bool first;  // of its key/value head: sums straight into dk and dv
  std::vector<RowBlock> blocks;
  Matrix dk;  // [chunk, D], of the other spans
  Matrix dv;  // [chunk, Dv]
};

std::vector<Span> make_spans(const Problem& problem) {
  const std::int64_t groups = problem.batch() * problem.heads_kv;
  const std::int64_t wanted = (kMinUnits + groups - 1) / groups;
  std::vector<Span> spans;
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    for (std::int64_t head_kv = 0; head_kv < problem.heads_kv; ++head_kv) {
      std::vector<RowBlock> blocks;
      for (std::int64_t g = 0; g < problem.group(); ++g) {
        append_row_blocks(head_slice(problem, b, head_kv * problem.group() + g), blocks);
      }
      const std::int64_t count = static_cast<std::int64_t>(blocks.size());
      const std::int64_t pieces = std::clamp<std::int64_t>(count / 2, 1, wanted);
      for (std::int64_t piece = 0; piece < pieces; ++piece) {
        Span span = {b, head_kv, piece == 0, {}, {}, {}};
        // Dealt round, because causal rows differ in cost.
        for (std::int64_t n = piece; n < count; n += pieces) span.blocks.push_back(blocks[n]);
        spans.push_back(std::move(span));
      }
    }
  }
  return spans;
}

void backward_block(const RowBlock& block, KeyRange chunk, const Inputs& inputs, const Scores& scores,
                    GradientTile& tile, Exact& exact, MatrixRef dk /* [chunk, D] */, MatrixRef dv /* [chunk, Dv] */) {
  const HeadSlice& head = block.head;
  KeyRange keys = scores.keys_of(head.b, block.i, block.count);
  keys = {std::max(keys.first, chunk.first), std::min(keys.last, chunk.last)};
  if (keys.first >= keys.last) return;
  const std::int64_t first = head.first_q + block.i;
  const ConstRows q = rows_of(inputs.q, head.h, first, block.count);      // [rows, D]
  const ConstRows d_o = rows_of(inputs.d_o, head.h, first, block.count);  // [rows, Dv]
  Rows dq = rows_of(exact.dq, head.h, first, block.count);                // [rows, D]
  tile.start_block(block, inputs, exact);
  // Tiles lie on a fixed grid of the chunk.
  const std::int64_t begin = chunk.first + (keys.first - chunk.first) / kTileKeys * kTileKeys;
  for (std::int64_t j = begin; j < keys.last; j += kTileKeys) {
    const std::int64_t count = std::min(kTileKeys, chunk.last - j);
    tile.compute(block, j, count, inputs, scores, exact, Softcap::differentiated);
    dv.middleRows(j - chunk.first, count).noalias() += tile.p().transpose() * d_o;
    dk.middleRows(j - chunk.first, count).noalias() += tile.ds().transpose() * q;
    dq.noalias() += tile.ds() * rows_of(inputs.k, head.head_kv, head.first_k + j, count);
  }
}

void run_span(const Problem& problem, Span& span, std::int64_t chunk_begin, const Inputs& inputs, const Scores& scores,
              GradientTile& tile, Exact& exact) {
  const HeadSlice head = head_slice(problem, span.b, span.head_kv * problem.group());
  const KeyRange chunk = {chunk_begin, std::min(chunk_begin + kChunkKeys, head.seq_k)};
  if (chunk.first >= chunk.last) return;
  const std::int64_t count = chunk.last - chunk.first;
  Rows dk = rows_of(exact.dk, span.head_kv, head.first_k + chunk.first, count);
  Rows dv = rows_of(exact.dv, span.head_kv, head.first_k + chunk.first, count);
  if (!span.first) {
    span.dk.setZero(count, problem.dim);
    span.dv.setZero(count, problem.width_v());
  }
  for (const RowBlock& block : span.blocks) {
    if (span.first) {
      backward_block(block, chunk, inputs, scores, tile, exact, dk, dv);
    } else {
      backward_block(block, chunk, inputs, scores, tile, exact, span.dk, span.dv);
    }
  }
}

// Adds the sums of the later spans of each key/value head, in their order.
void add_spans(const Problem& problem, std::vector<Span>& spans, std::int64_t chunk_begin, Exact& exact) {
  for (Span& span : spans) {
    if (span.first || span.dk.rows() == 0) continue;
    const HeadSlice head = head_slice(problem, span.b, span.head_kv * problem.group());
    if (chunk_begin >= head.seq_k) continue;
    rows_of(exact.dk, span.head_kv, head.first_k + chunk_begin, span.dk.rows()) += span.dk;
    rows_of(exact.dv, span.head_kv, head.first_k + chunk_begin, span.dv.rows()) += span.dv;
  }
}

}  // namespace

void sweep_backward(const Problem& problem, const Inputs& inputs, const Scores& scores, Exact& exact) {
  std::vector<Span> spans = make_spans(problem);
  const std::int64_t count = static_cast<std::int64_t>(spans.size());
#pragma omp parallel if (flops(problem, 3) > kThreadedFlops)
  {
    GradientTile tile;
    for (std::int64_t chunk = 0; chunk < problem.max_k(); chunk += kChunkKeys) {
#pragma omp for schedule(dynamic)
      for (std::int64_t n = 0; n < count; ++n) run_span(problem, spans[n], chunk, inputs, scores, tile, exact);
#pragma omp single
      add_spans(problem, spans, chunk, exact);
    }
  }
  for (double& x : exact.dq.data) x *= scores.scale();
  for (double& x : exact.dk.data) x *= scores.scale();
}

}  // namespace attest

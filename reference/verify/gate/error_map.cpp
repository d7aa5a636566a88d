// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/gate/error_map.h"

#include <algorithm>

#include "reference/verify/check.h"
#include "reference/verify/judge.h"
#include "reference/verify/run_kernel.h"

namespace attest {

ErrorMap error_map(std::string tensor, const Values& want, const Values& got, const Values& bound, Dtype type,
                   std::int64_t most_cells, std::int64_t most_heads) {
  ErrorMap map;
  map.tensor = std::move(tensor);
  map.heads = std::min(want.heads, most_heads);
  map.rows = want.tokens;
  map.rows_per_cell = std::max<std::int64_t>(1, (want.tokens + most_cells - 1) / most_cells);
  map.cells = (want.tokens + map.rows_per_cell - 1) / map.rows_per_cell;
  map.scores.assign(static_cast<std::size_t>(map.heads * map.cells), 0);
  for (std::int64_t token = 0; token < want.tokens; ++token) {
    for (std::int64_t h = 0; h < map.heads; ++h) {
      double& cell = map.scores[static_cast<std::size_t>(h * map.cells + token / map.rows_per_cell)];
      const auto exact = want.row(token, h);
      const auto given = got.row(token, h);
      const auto allowed = bound.row(token, h);
      for (std::size_t c = 0; c < exact.size(); ++c) cell = std::max(cell, element_score(exact[c], given[c], allowed[c], type));
    }
  }
  return map;
}

std::vector<ErrorMap> error_maps(const Kernel& kernel, const Problem& problem, DeviceMemory& memory) {
  const PreparedCase prepared = prepare(kernel, problem);
  if (!prepared.unsupported.empty() || prepared.failure) return {};
  const KernelRun run = run_kernel(kernel, problem, prepared.inputs, prepared.truth.exact, memory);
  if (!run.judgeable()) return {};
  const Exact& want = prepared.truth.exact;
  const auto& bounds = prepared.truth.bounds;
  const Dtype type = problem.output_dtype();
  std::vector<ErrorMap> maps;
  if (problem.wants_forward()) maps.push_back(error_map("o", want.o, run.outputs.o, bounds.o, type));
  if (problem.wants_backward()) {
    maps.push_back(error_map("dq", want.dq, run.outputs.dq, bounds.dq, type));
    maps.push_back(error_map("dk", want.dk, run.outputs.dk, bounds.dk, type));
    maps.push_back(error_map("dv", want.dv, run.outputs.dv, bounds.dv, type));
  }
  return maps;
}

}  // namespace attest

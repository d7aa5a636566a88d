// SPDX-License-Identifier: Apache-2.0
// The same values in another layout: one tensor with other strides, another order of dimensions, the other padding side,
// packed. Nothing else about the case changes, so its exact answer is the same.
#include "reference/verify/checks/check_units.h"
#include "reference/verify/checks/compare.h"

#include <algorithm>

#include <fmt/format.h>

#include "reference/problem/layout.h"

namespace attest {
namespace {

Strides other_strides(const CheckContext& context, const Problem& p, TensorId id) {
  const Extents e = extents_of(p, id);
  const std::int64_t gap = context.below(3, "layouts", 2) * 8;
  const std::int64_t rows = std::max<std::int64_t>(e.rows, 1);
  Strides strides;
  switch (context.below(3, "layouts", 3)) {
    case 0:  // head, token, column
      strides.seq = e.width + gap;
      strides.head = strides.seq * rows + gap;
      strides.batch = strides.head * e.heads + gap;
      break;
    case 1:  // token, head, column
      strides.head = e.width + gap;
      strides.seq = strides.head * e.heads + gap;
      strides.batch = strides.seq * rows + gap;
      break;
    default:  // head, batch, token: the batch is neither the outermost nor the innermost
      strides.seq = e.width + gap;
      strides.batch = strides.seq * rows + gap;
      strides.head = strides.batch * std::max<std::int64_t>(e.batch, 1) + gap;
      break;
  }
  if (p.layout == Layout::thd && !is_paged(p, id)) strides.batch = 0;
  return strides;
}

void drop_strides(Problem& p) {
  for (auto& strides : p.strides) strides.reset();
}

Problem variant_of(const CheckContext& context, std::string& what) {
  Problem p = context.problem();
  // Where a packed row lies is found by a sum over the batch, so a batch of thousands is not packed.
  const std::int64_t kind = p.batch() > 1000 ? 4 : context.below(6, "layouts");
  if (kind < 3) {
    std::vector<TensorId> ids;
    for (const TensorId id : kTensorIds) {
      const bool gradient = id == TensorId::d_o || id == TensorId::dq || id == TensorId::dk || id == TensorId::dv;
      if (!gradient || p.wants_backward()) ids.push_back(id);
    }
    const TensorId id = ids[static_cast<std::size_t>(context.below(static_cast<std::int64_t>(ids.size()), "layouts", 1))];
    p.strides[static_cast<std::size_t>(id)] = other_strides(context, p, id);
    what = fmt::format("with other strides of {}", name_of(id));
    return p;
  }
  drop_strides(p);
  if (kind == 3) {
    const bool packed = p.layout == Layout::thd;
    p.layout = packed ? Layout::bshd : Layout::thd;
    p.pad = PadSide::right;
    p.extent_q.reset();
    p.extent_k.reset();
    what = packed ? "padded instead of packed" : "packed";
  } else if (p.layout == Layout::thd) {
    p.extent_q = p.total_q() + 5;
    if (p.page_size == 0) p.extent_k = p.total_k() + 3;
    what = "with rows past the last offset";
  } else if (kind == 4) {
    p.layout = p.layout == Layout::bshd ? Layout::bhsd : Layout::bshd;
    what = p.layout == Layout::bshd ? "as bshd" : "as bhsd";
  } else {
    p.pad = p.pad == PadSide::right ? PadSide::left : PadSide::right;
    p.extent_q = p.max_q() + 5;
    if (p.page_size == 0) p.extent_k = p.max_k() + 70;
    what = p.pad == PadSide::right ? "padded right" : "padded left";
  }
  return p;
}

CheckResult run(const CheckContext& context) {
  std::string what;
  const Problem p = variant_of(context, what);
  if (const std::string why = context.kernel().why_unsupported(p); !why.empty()) return CheckResult::not_applicable(why);
  CheckResult result;
  expect_truth(p, truth_for(context, p, context.inputs()), context.run(p, context.inputs(), context.truth().exact), what, result);
  return result;
}

}  // namespace

const CheckUnit kLayouts = {"layouts", "other strides, orders, padding and packing of the same values give the same answer",
                            "K02 K03 K05 K13 K15 K17 M21 M23 M32", 1, run};

}  // namespace attest

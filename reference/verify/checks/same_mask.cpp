// SPDX-License-Identifier: Apache-2.0
// One mask in several descriptions: causal as a window, everything as one explicit mask or as a block mask of 1 x 1 tiles,
// a mask that hides nothing added. The visible pairs, and so the exact answer, stay the same.
#include "reference/verify/checks/check_units.h"
#include "reference/verify/checks/compare.h"

#include <algorithm>

#include "reference/verify/checks/explicit_mask.h"

namespace attest {
namespace {

void use_blocks(Problem& p, Inputs& inputs) {
  Operand<std::uint8_t> pairs = visible_pairs(p, inputs);
  const Operand<std::uint8_t> one_head = pairs;
  pairs.extent_h = p.heads_q;
  pairs.data.clear();
  for (std::int64_t b = 0; b < p.batch(); ++b) {
    for (std::int64_t h = 0; h < p.heads_q; ++h) {
      const std::int64_t from = one_head.extent_h == 1 ? 0 : h;
      const std::int64_t tile = one_head.extent_q * one_head.extent_k;
      const auto first = one_head.data.begin() + static_cast<std::ptrdiff_t>((b * one_head.extent_h + from) * tile);
      pairs.data.insert(pairs.data.end(), first, first + static_cast<std::ptrdiff_t>(tile));
    }
  }
  inputs.block_mask = std::move(pairs);
  inputs.mask = {};
  p.block = BlockMask{1, 1, 0, 0, 1};
  p.mask.reset();
  p.window.reset();
  p.causal = Causal::none;
}

std::string describe_otherwise(const CheckContext& context, Problem& p, Inputs& inputs) {
  const std::int64_t kind = context.below(4, "same-mask");
  const bool large = !fits_explicit(p);
  if (kind == 0 && !large && p.max_q() * p.max_k() > 0) {
    use_explicit(p, inputs);
    return "as one explicit mask";
  }
  if (kind == 1 && !large && p.max_q() * p.max_k() > 0) {
    use_blocks(p, inputs);
    return "as a block mask of 1 x 1 tiles";
  }
  if (p.causal != Causal::none) {
    Window window = p.window.value_or(Window{});
    window.right = window.right < 0 ? 0 : std::min<std::int64_t>(window.right, 0);
    window.alignment = p.causal;
    p.window = window;
    p.causal = Causal::none;
    return "causal as a window";
  }
  if (p.window && p.window->right == 0) {
    p.causal = p.window->alignment == Causal::none ? Causal::bottom_right : p.window->alignment;
    p.window->right = -1;
    p.window->alignment = Causal::none;
    return "a window as causal";
  }
  if (!p.window) {
    p.window = kind == 2 ? Window{} : Window{p.max_q() + p.max_k(), p.max_q() + p.max_k(), Causal::none};
    return "with a window that hides nothing";
  }
  if (p.mask) return "";
  p.mask = ExplicitMask{{false, false, false, true}, 1};
  inputs.mask = {1, 1, 1, p.max_k(), std::vector<std::uint8_t>(static_cast<std::size_t>(p.max_k()), 1)};
  return "with a mask that hides nothing";
}

CheckResult run(const CheckContext& context) {
  Problem p = context.problem();
  Inputs inputs = context.inputs();
  const std::string otherwise = describe_otherwise(context, p, inputs);
  if (otherwise.empty()) return CheckResult::not_applicable("no other description");
  const std::string when = "the mask " + otherwise;
  if (const std::string why = context.kernel().why_unsupported(p); !why.empty()) return CheckResult::not_applicable(why);
  CheckResult result;
  expect_truth(p, truth_for(context, p, inputs), context.run(p, inputs, context.truth().exact), when, result);
  return result;
}

}  // namespace

const CheckUnit kSameMask = {"same-mask", "one mask in other descriptions (flag, window, explicit, blocks) gives the same answer",
                             "K06 K07 K22 K27 M07 M09 M10", 1, run};

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
#include "tests/support/bound_study.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/problem/inputs.h"
#include "tests/support/kernel_call.h"

namespace attest {
namespace {

/// Draws from one case's stream of random words.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : seed_(seed) {}
  std::int64_t below(std::int64_t limit) {
    return static_cast<std::int64_t>(random_word(seed_, 77, next_++) % static_cast<std::uint64_t>(limit));
  }
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }
  bool one_in(std::int64_t n) { return below(n) == 0; }
  template <typename T>
  T of(std::initializer_list<T> choices) {
    return *(choices.begin() + below(static_cast<std::int64_t>(choices.size())));
  }

 private:
  std::uint64_t seed_;
  std::uint64_t next_ = 0;
};

void draw_features(Draw& draw, Problem& problem) {
  problem.causal = draw.of({Causal::none, Causal::none, Causal::top_left, Causal::bottom_right});
  if (draw.one_in(6)) problem.window = Window{draw.between(-1, 40), draw.between(-1, 40), Causal::none};
  if (draw.one_in(6)) problem.softcap = draw.of({0.5, 4.0, 30.0});
  if (draw.one_in(5)) problem.bias = Bias{{draw.one_in(2), draw.one_in(2), draw.one_in(2), draw.one_in(2)}, {}, 0.1};
  problem.d_bias = problem.bias.has_value() && draw.one_in(2);
  problem.alibi = draw.one_in(8);
  if (draw.one_in(8)) problem.mask = ExplicitMask{{false, false, true, true}, 0.5};
  if (draw.one_in(6)) problem.dropout = Dropout{draw.of({0.0, 0.1, 0.5, 0.9}), static_cast<std::uint64_t>(draw.below(1000)), 0};
  problem.d_lse = draw.one_in(5);
  if (draw.one_in(6)) problem.scale = draw.of({0.0, -0.125, 1.0, 0.01});
}

void add_ratios(const std::vector<double>& want, const std::vector<double>& got, const std::vector<double>& bound,
                double largest, StudiedCase& studied, Ratios& ratios) {
  for (std::size_t n = 0; n < want.size(); ++n) {
    ++studied.elements;
    if (bound[n] == std::numeric_limits<double>::infinity()) {
      ++studied.unspecified;
      continue;
    }
    const bool same = want[n] == got[n];
    const bool overflow = std::isinf(got[n]) && std::abs(want[n]) + bound[n] >= largest && got[n] * want[n] > 0;
    const double error = same || overflow ? 0 : std::abs(got[n] - want[n]);
    if (bound[n] == 0 && error == 0) continue;
    const double ratio = error == 0 ? 0 : error / bound[n];
    ratios.push_back(std::isnan(ratio) ? std::numeric_limits<float>::infinity() : static_cast<float>(ratio));
  }
}

}  // namespace

Problem study_problem(std::uint64_t seed, std::int64_t longest) {
  Draw draw(seed);
  Problem problem;
  problem.dtype = draw.of({Dtype::f16, Dtype::bf16, Dtype::f32, Dtype::f64, Dtype::f8e4m3, Dtype::f8e5m2});
  problem.seq_q.clear();
  problem.seq_k.clear();
  const std::int64_t batch = draw.between(1, 3);
  for (std::int64_t b = 0; b < batch; ++b) {
    problem.seq_q.push_back(draw.between(0, longest));
    problem.seq_k.push_back(draw.between(0, longest));
  }
  problem.heads_kv = draw.between(1, 2);
  problem.heads_q = problem.heads_kv * draw.between(1, 3);
  problem.dim = draw.of<std::int64_t>({1, 2, 4, 8, 16, 24, 64, 128});
  problem.dim_v = draw.one_in(2) ? problem.dim : draw.of<std::int64_t>({1, 4, 40, 64});
  draw_features(draw, problem);
  std::vector<const Family*> known;
  for (const Family& one : families()) known.push_back(&one);
  problem.fill.family = known[static_cast<std::size_t>(draw.below(static_cast<std::int64_t>(known.size())))]->name;
  problem.fill.seed = seed;
  return problem;
}

BoundMode study_mode(const Problem& problem) {
  return family(problem.fill.family).kind == FamilyKind::random ? BoundMode::gen : BoundMode::det;
}

StudiedCase study(const attest_kernel& kernel, const Problem& problem, BoundMode mode) {
  StudiedCase studied;
  const Inputs inputs = make_inputs(problem);
  KernelCall call(problem, inputs);
  if (call.run(kernel) != ATTEST_OK) {
    studied.error = call.message();
    return studied;
  }
  attest_numerics numerics = {};
  numerics.struct_size = sizeof numerics;
  kernel.numerics(&call.problem(), &numerics);
  const ExactWithBounds truth = exact_attention_with_bounds(problem, inputs, make_profile(numerics, problem), mode);
  const Exact got = call.outputs();
  const double largest = format_of(problem.output_dtype()).max;
  const auto add = [&](int tensor, const std::vector<double>& want, const std::vector<double>& have,
                       const std::vector<double>& bound) {
    add_ratios(want, have, bound, largest, studied, studied.ratios[static_cast<std::size_t>(tensor)]);
  };
  add(0, truth.exact.o.data, got.o.data, truth.bounds.o.data);
  add(1, truth.exact.lse, got.lse, truth.bounds.lse);
  if (!problem.wants_backward()) return studied;
  add(2, truth.exact.dq.data, got.dq.data, truth.bounds.dq.data);
  add(3, truth.exact.dk.data, got.dk.data, truth.bounds.dk.data);
  add(4, truth.exact.dv.data, got.dv.data, truth.bounds.dv.data);
  add(5, truth.exact.d_bias.data, got.d_bias.data, truth.bounds.d_bias.data);
  return studied;
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// The single simplifications of a case, in the order in which shrinking tries them.
#include <algorithm>
#include <functional>

#include "reference/problem/invalid_request.h"
#include "reference/verify/shrink.h"

namespace attest {
namespace {

class Simplifications {
 public:
  explicit Simplifications(const Problem& problem) : problem_(problem) {}

  template <typename Change>
  void add(Change change) {
    Problem candidate = problem_;
    change(candidate);
    if (candidate == problem_) return;
    try {
      validate(candidate);
    } catch (const InvalidRequest&) {
      return;  // strides that no longer fit, and the like
    }
    candidates_.push_back(std::move(candidate));
  }
  std::vector<Problem> take() { return std::move(candidates_); }

 private:
  const Problem& problem_;
  std::vector<Problem> candidates_;
};

/// Smaller values of n, largest step first; the last is n - 1.
std::vector<std::int64_t> below(std::int64_t n, std::int64_t least) {
  std::vector<std::int64_t> values;
  if (n > least) values.push_back(least);
  for (std::int64_t step = (n - least) / 2; step >= 1; step /= 2) values.push_back(n - step);
  return values;
}

void fewer_sequences(const Problem& p, Simplifications& all) {
  const auto keep = [](Problem& q, std::size_t from, std::size_t to) {
    const auto cut = [&](std::vector<std::int64_t>& v) {
      v = std::vector<std::int64_t>(v.begin() + static_cast<std::ptrdiff_t>(from), v.begin() + static_cast<std::ptrdiff_t>(to));
    };
    cut(q.seq_q);
    cut(q.seq_k);
    q.extent_q.reset();
    q.extent_k.reset();
  };
  const auto batch = static_cast<std::size_t>(p.batch());
  if (batch == 1) return;
  const std::size_t alone = std::min<std::size_t>(batch, 8);
  for (std::size_t b = 0; b < alone; ++b) all.add([&](Problem& q) { keep(q, b, b + 1); });
  all.add([&](Problem& q) { keep(q, 0, batch / 2); });
  all.add([&](Problem& q) { keep(q, batch / 2, batch); });
  all.add([&](Problem& q) { keep(q, 0, batch - 1); });
  all.add([&](Problem& q) { keep(q, 1, batch); });
}

void plainer_features(const Problem& p, Simplifications& all) {
  all.add([](Problem& q) {
    for (auto& strides : q.strides) strides.reset();
  });
  for (std::size_t id = 0; id < p.strides.size(); ++id) all.add([&](Problem& q) { q.strides[id].reset(); });
  all.add([](Problem& q) { q.page_size = 0; });
  all.add([](Problem& q) { q.mask.reset(); });
  all.add([](Problem& q) { q.block.reset(); });
  all.add([](Problem& q) { q.bias.reset(), q.d_bias = false; });
  all.add([](Problem& q) { q.d_bias = false; });
  all.add([](Problem& q) { q.alibi = false; });
  all.add([](Problem& q) { q.softcap = 0; });
  all.add([](Problem& q) { q.dropout.reset(); });
  all.add([](Problem& q) { q.window.reset(); });
  all.add([](Problem& q) { q.causal = Causal::none; });
  all.add([](Problem& q) { q.scale.reset(); });
  all.add([](Problem& q) { q.d_lse = false; });
  all.add([](Problem& q) { q.extent_q.reset(); });
  all.add([](Problem& q) { q.extent_k.reset(); });
  all.add([](Problem& q) { q.pad = PadSide::right; });
  all.add([](Problem& q) { q.direction = Direction::forward, q.d_lse = q.d_bias = false; });
  if (p.direction == Direction::both) all.add([](Problem& q) { q.direction = Direction::backward; });
  if (p.layout != Layout::bshd) {
    all.add([](Problem& q) {
      q.layout = Layout::bshd;
      q.extent_q.reset();
      q.extent_k.reset();
      for (auto& strides : q.strides) strides.reset();
    });
  }
}

void fewer_heads(const Problem& p, Simplifications& all) {
  all.add([](Problem& q) { q.heads_q = q.heads_kv = 1; });
  const std::int64_t group = p.group();
  for (const std::int64_t kv : below(p.heads_kv, 1)) all.add([&](Problem& q) { q.heads_kv = kv, q.heads_q = kv * group; });
  for (const std::int64_t ratio : below(group, 1)) all.add([&](Problem& q) { q.heads_q = q.heads_kv * ratio; });
}

void shorter(const Problem& p, Simplifications& all) {
  // Both together first: a causal mask keeps its shape.
  for (std::size_t b = 0; b < p.seq_q.size() && b < 8; ++b) {
    const std::int64_t least = std::min(p.seq_q[b], p.seq_k[b]);
    for (const std::int64_t n : below(least, 0)) {
      all.add([&](Problem& q) { q.seq_q[b] -= least - n, q.seq_k[b] -= least - n; });
    }
  }
  for (std::size_t b = 0; b < p.seq_q.size() && b < 8; ++b) {
    for (const std::int64_t n : below(p.seq_k[b], 0)) all.add([&](Problem& q) { q.seq_k[b] = n; });
    for (const std::int64_t n : below(p.seq_q[b], 0)) all.add([&](Problem& q) { q.seq_q[b] = n; });
  }
  for (const std::int64_t n : below(p.rows_q(), 0)) all.add([&](Problem& q) { if (q.extent_q) q.extent_q = n; });
  for (const std::int64_t n : below(p.rows_k(), 0)) all.add([&](Problem& q) { if (q.extent_k) q.extent_k = n; });
}

void narrower(const Problem& p, Simplifications& all) {
  all.add([](Problem& q) { q.dim_v.reset(); });
  for (const std::int64_t d : below(p.dim, 1)) all.add([&](Problem& q) { q.dim = d; });
  if (p.dim_v) {
    for (const std::int64_t d : below(*p.dim_v, 1)) all.add([&](Problem& q) { q.dim_v = d; });
  }
}

void plainer_values(const Problem& p, Simplifications& all) {
  all.add([](Problem& q) { q.out_dtype.reset(); });
  all.add([](Problem& q) { q.dtype = Dtype::f32, q.out_dtype.reset(); });
  if (p.fill.family != "normal") all.add([](Problem& q) { q.fill.family = "normal", q.fill.parameter.reset(); });
  all.add([](Problem& q) { q.fill.parameter.reset(); });
  all.add([](Problem& q) { q.fill.seed = 0; });
  if (p.window) {
    for (const std::int64_t side : below(p.window->left, -1)) all.add([&](Problem& q) { q.window->left = side; });
    for (const std::int64_t side : below(p.window->right, -1)) all.add([&](Problem& q) { q.window->right = side; });
    all.add([](Problem& q) { q.window->alignment = Causal::none; });
  }
  if (p.bias) {
    all.add([](Problem& q) { q.bias->hide = 0; });
    all.add([](Problem& q) { q.bias->dtype.reset(); });
    all.add([](Problem& q) { q.bias->shape = Broadcast{}; });
  }
  if (p.mask) all.add([](Problem& q) { q.mask->shape = Broadcast{}; });
  if (p.block) {
    all.add([](Problem& q) { q.block->random = 0; });
    all.add([](Problem& q) { q.block->global = 0; });
    for (const std::int64_t n : below(p.block->rows, 1)) all.add([&](Problem& q) { q.block->rows = n; });
    for (const std::int64_t n : below(p.block->cols, 1)) all.add([&](Problem& q) { q.block->cols = n; });
  }
  if (p.dropout) all.add([](Problem& q) { q.dropout->seed = q.dropout->offset = 0; });
}

}  // namespace

std::vector<Problem> simpler(const Problem& problem) {
  Simplifications all(problem);
  fewer_sequences(problem, all);
  plainer_features(problem, all);
  fewer_heads(problem, all);
  shorter(problem, all);
  narrower(problem, all);
  plainer_values(problem, all);
  return all.take();
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// The kernel's own forward against its own backward: elements of q, k or v move by a step in the direction in which
// L = <do, o> + <dlse, lse> rises, and as far the other way; the difference of the two L must be the backward's.
//
// Every row (of q) or head of a sequence (of k, v) is judged by itself, with the step, a power of two by which its elements
// stay exact, that leaves most of the difference above its budget:
//   - the bounds of o and lse of both forwards, each times |do| and |dlse|, and of the moved elements' gradients;
//   - what a central difference leaves out. Scores of a row change by t a_j, t from -1 to 1, the a_j within a range of R.
//     L''' is a third cumulant: |k(g, a, a, a)| <= (1/4 + 3/16) (2 G) R^3 for g_j = <do, v_j> Z_j / (1 - p) of at most G, by
//     Cauchy and var(a) <= R^2 / 4; of lse |k(a, a, a)| <= R^3 / 4. L(1) - L(-1) - 2 L'(0) is at most a third of it.
// Nothing is left out for v, in which L is linear. Where no budget is below its difference, the check does not apply.
#include "reference/verify/checks/check_units.h"
#include "reference/verify/checks/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "reference/oracle/visibility.h"
#include "reference/problem/dtype.h"

namespace attest {
namespace {

constexpr std::int64_t kRows = 16;    // of q that move
constexpr double kMostWork = 1e6;     // multiplications to find a step for k
constexpr int kSteps = 14;            // powers of two that are tried

struct Row {
  std::int64_t b, i, h;
  std::int64_t token;  // of q
};

/// What is judged together: the rows whose L counts, and the elements that move.
struct Cell {
  std::vector<Row> rows;
  std::size_t first = 0;  // of its elements in the tensor: `count` runs of D or Dv, `pitch` apart
  std::size_t pitch = 0;
  std::size_t count = 0;
  std::vector<double> largest;  // of each row, |<do, v_j>| / (1 - p)
};

struct Step {
  std::vector<double> moves;  // [count, width] of the cell
  double difference = 0;      // of L, by the exact gradient
  double budget = 0;          // but for what the forwards add
};

class Derivative {
 public:
  Derivative(const CheckContext& context, TensorId id)
      : context_(context), p_(context.problem()), id_(id), offsets_q_(token_offsets(p_.seq_q)), offsets_k_(token_offsets(p_.seq_k)) {}

  CheckResult run() {
    for (Cell& cell : cells()) {
      const double forwards = forward_budget(cell, context_.truth().bounds, context_.truth().bounds);
      Step best = best_step(cell, forwards);
      if (!(best.difference > best.budget + forwards)) continue;
      cells_.push_back(std::move(cell));
      steps_.push_back(std::move(best));
    }
    if (cells_.empty()) return CheckResult::not_applicable("the bounds of o are larger than any difference of it");
    return judge();
  }

 private:
  const Values& tensor(const Inputs& inputs) const { return id_ == TensorId::q ? inputs.q : id_ == TensorId::k ? inputs.k : inputs.v; }
  Values& tensor(Inputs& inputs) const { return id_ == TensorId::q ? inputs.q : id_ == TensorId::k ? inputs.k : inputs.v; }
  template <typename T>
  const Values& gradient(const T& of) const { return id_ == TensorId::q ? of.dq : id_ == TensorId::k ? of.dk : of.dv; }
  std::size_t width() const { return static_cast<std::size_t>(tensor(context_.inputs()).width); }
  std::size_t place(const Cell& cell, std::size_t n) const { return cell.first + n / width() * cell.pitch + n % width(); }
  double d_lse(const Row& row) const { return p_.d_lse ? context_.inputs().d_lse[static_cast<std::size_t>(row.token * p_.heads_q + row.h)] : 0; }

  std::vector<Cell> cells() const {
    std::vector<Cell> cells;
    if (id_ == TensorId::q) {
      const std::int64_t rows = p_.total_q() * p_.heads_q;
      for (std::int64_t n = 0; n < std::min(rows, kRows); ++n) {
        // All of a few, else one of each sixteenth.
        const std::int64_t at = rows <= kRows ? n : n * rows / kRows + context_.below(rows / kRows, "derivative", static_cast<std::uint64_t>(n + 2));
        cells.push_back({{row_at(at / p_.heads_q, at % p_.heads_q)}, static_cast<std::size_t>(at) * width(), width(), 1, {}});
      }
    } else {
      const std::int64_t b = context_.below(p_.batch(), "derivative", 1);
      const std::int64_t kv = context_.below(p_.heads_kv, "derivative", 2);
      Cell cell;
      for (std::int64_t token = offsets_q_[static_cast<std::size_t>(b)]; token < offsets_q_[static_cast<std::size_t>(b) + 1]; ++token) {
        for (std::int64_t h = kv * p_.group(); h < (kv + 1) * p_.group(); ++h) cell.rows.push_back(row_at(token, h));
      }
      cell.pitch = static_cast<std::size_t>(p_.heads_kv) * width();
      cell.first = static_cast<std::size_t>(offsets_k_[static_cast<std::size_t>(b)]) * cell.pitch + static_cast<std::size_t>(kv) * width();
      cell.count = static_cast<std::size_t>(p_.seq_k[static_cast<std::size_t>(b)]);
      cells.push_back(std::move(cell));
    }
    for (Cell& cell : cells) {
      for (const Row& row : cell.rows) cell.largest.push_back(id_ == TensorId::v ? 0 : largest_product(row));
    }
    return cells;
  }

  Row row_at(std::int64_t token, std::int64_t h) const {
    const auto b = std::ranges::upper_bound(offsets_q_, token) - offsets_q_.begin() - 1;
    return {b, token - offsets_q_[static_cast<std::size_t>(b)], h, token};
  }

  /// Calls f(token of k) for the keys that the row may see.
  template <typename F>
  void for_keys(const Row& row, F f) const {
    const KeyRange range = key_range(p_, row.b, row.i);
    for (std::int64_t j = range.first; j < range.last; ++j) f(offsets_k_[static_cast<std::size_t>(row.b)] + j);
  }

  static double dot(std::span<const double> x, std::span<const double> y) {
    double sum = 0;
    for (std::size_t n = 0; n < x.size(); ++n) sum += x[n] * y[n];
    return sum;
  }

  double largest_product(const Row& row) const {
    double most = 0;
    const auto d_o = context_.inputs().d_o.row(row.token, row.h);
    for_keys(row, [&](std::int64_t key) { most = std::max(most, std::abs(dot(d_o, context_.inputs().v.row(key, row.h / p_.group())))); });
    return most / (1 - p_.effective_dropout());
  }

  /// Range of the changes of a row's scores.
  double range_of(const Row& row, std::span<const double> moves) const {
    double least = std::numeric_limits<double>::infinity(), most = -least;
    const std::int64_t first_key = offsets_k_[static_cast<std::size_t>(row.b)];
    for_keys(row, [&](std::int64_t key) {
      const double change = id_ == TensorId::q ? dot(moves, context_.inputs().k.row(key, row.h / p_.group()))
                                               : dot(context_.inputs().q.row(row.token, row.h),
                                                     moves.subspan(static_cast<std::size_t>(key - first_key) * width(), width()));
      least = std::min(least, change);
      most = std::max(most, change);
    });
    return most < least ? 0 : (most - least) * std::abs(p_.effective_scale());
  }

  Step make_step(const Cell& cell, double size) const {
    Step step;
    step.moves.assign(cell.count * width(), 0);
    const std::vector<double>& values = tensor(context_.inputs()).data;
    for (std::size_t n = 0; n < step.moves.size(); ++n) {
      const std::size_t at = place(cell, n);
      const double slope = gradient(context_.truth().exact).data[at];
      if (slope == 0 || round_to(p_.dtype, values[at] + size) != values[at] + size || round_to(p_.dtype, values[at] - size) != values[at] - size) continue;
      step.moves[n] = slope > 0 ? size : -size;
      step.difference += 2 * size * std::abs(slope);
      step.budget += 2 * size * gradient(context_.truth().bounds).data[at];
    }
    if (id_ == TensorId::v || step.difference == 0) return step;
    for (std::size_t n = 0; n < cell.rows.size(); ++n) {
      const double cube = std::pow(range_of(cell.rows[n], step.moves), 3);
      step.budget += (7.0 / 8 * cell.largest[n] + std::abs(d_lse(cell.rows[n])) / 4) * cube / 3;
    }
    return step;
  }

  /// The step that leaves the largest share of its difference above its budget; `forwards` is what both forwards add.
  Step best_step(const Cell& cell, double forwards) const {
    double most = 0;
    for (std::size_t n = 0; n < cell.count * width(); ++n) most = std::max(most, std::abs(tensor(context_.inputs()).data[place(cell, n)]));
    Step best;
    if (most == 0 || !std::isfinite(most)) return best;
    double best_share = 1;
    for (int n = 0; n < kSteps; ++n) {
      Step step = make_step(cell, std::ldexp(1.0, std::ilogb(most) - n));
      const double share = (step.budget + forwards) / step.difference;  // NaN where nothing moves
      if (!(share < best_share)) continue;
      best_share = share;
      best = std::move(step);
    }
    return best;
  }

  /// What the errors of o and lse of two forwards may add to a difference of L.
  double forward_budget(const Cell& cell, const Bounds& one, const Bounds& other) const {
    double budget = 0;
    for (const Row& row : cell.rows) {
      const auto d_o = context_.inputs().d_o.row(row.token, row.h);
      for (std::size_t d = 0; d < d_o.size(); ++d) {
        budget += std::abs(d_o[d]) * (one.o.row(row.token, row.h)[d] + other.o.row(row.token, row.h)[d]);
      }
      const auto at = static_cast<std::size_t>(row.token * p_.heads_q + row.h);
      if (d_lse(row) != 0) budget += std::abs(d_lse(row)) * (one.lse[at] + other.lse[at]);
    }
    return budget;
  }

  /// L of the cell's rows and, added to `size`, the terms that it adds up.
  double loss(const Cell& cell, const Outputs& outputs, double& size) const {
    double sum = 0;
    for (const Row& row : cell.rows) {
      const auto at = static_cast<std::size_t>(row.token * p_.heads_q + row.h);
      const auto o = outputs.o.row(row.token, row.h);
      const auto d_o = context_.inputs().d_o.row(row.token, row.h);
      for (std::size_t d = 0; d < o.size(); ++d) {
        sum += d_o[d] * o[d];
        size += std::abs(d_o[d] * o[d]);
      }
      if (d_lse(row) == 0 || context_.truth().exact.lse[at] == -std::numeric_limits<double>::infinity()) continue;
      sum += d_lse(row) * outputs.lse[at];
      size += std::abs(d_lse(row) * outputs.lse[at]);
    }
    return sum;
  }

  struct Moved {
    ExactWithBounds truth;
    Outputs got;
  };

  bool run_moved(double sign, Moved& moved, CheckResult& result) const {
    Problem p = p_;
    p.direction = Direction::forward;
    p.d_lse = p.d_bias = false;
    if (!context_.kernel().why_unsupported(p).empty()) {
      result = CheckResult::not_applicable("forward alone is not supported");
      return false;
    }
    Inputs inputs = context_.inputs();
    for (std::size_t c = 0; c < cells_.size(); ++c) {
      for (std::size_t n = 0; n < steps_[c].moves.size(); ++n) tensor(inputs).data[place(cells_[c], n)] += sign * steps_[c].moves[n];
    }
    moved.truth = bounds_around(context_, p, inputs, exact_attention(p, inputs));
    KernelRun run = context_.run(p, inputs, moved.truth.exact);
    if (!answered(run, fmt::format("with a step in {}", name_of(id_)), result)) return false;
    moved.got = std::move(run.outputs);
    return true;
  }

  CheckResult judge() const {
    CheckResult result;
    Moved up, down;
    if (!run_moved(1, up, result) || !run_moved(-1, down, result)) return result;
    bool any = false;
    for (std::size_t c = 0; c < cells_.size(); ++c) {
      const Cell& cell = cells_[c];
      const Step& step = steps_[c];
      double by_backward = 0, size = 0;
      for (std::size_t n = 0; n < step.moves.size(); ++n) {
        if (step.moves[n] != 0) by_backward += 2 * step.moves[n] * gradient(context_.base()).data[place(cell, n)];
      }
      const double by_forward = loss(cell, up.got, size) - loss(cell, down.got, size);
      const double terms = static_cast<double>(step.moves.size()) + static_cast<double>(cell.rows.size()) * static_cast<double>(p_.width_v() + 1);
      const double budget = step.budget + forward_budget(cell, up.truth.bounds, down.truth.bounds) + (size + step.difference) * terms * 0x1p-53;
      if (!(step.difference > budget)) continue;
      any = true;
      if (std::abs(by_forward - by_backward) <= budget) continue;
      const Row& row = cell.rows.front();
      result.findings.push_back({"", fmt::format("d{}", name_of(id_)),
                                 fmt::format("a step in {} of [b={} h={}{}] changes <do, o> + <dlse, lse> by {:.9g} by the forward and by {:.9g} by the backward, bound {:.3g}",
                                             name_of(id_), row.b, id_ == TensorId::q ? row.h : row.h / p_.group(),
                                             id_ == TensorId::q ? fmt::format(" i={}", row.i) : "", by_forward, by_backward, budget)});
      return result;
    }
    return any ? result : CheckResult::not_applicable("the bounds of o are larger than any difference of it");
  }

  const CheckContext& context_;
  const Problem& p_;
  TensorId id_;
  std::vector<std::int64_t> offsets_q_, offsets_k_;
  std::vector<Cell> cells_;
  std::vector<Step> steps_;
};

/// Work to find a step for a head's k.
double work_of_k(const Problem& p) {
  return kSteps * static_cast<double>(p.max_q()) * static_cast<double>(p.group()) * static_cast<double>(p.max_k()) * static_cast<double>(p.dim);
}

CheckResult run(const CheckContext& context) {
  const Problem& p = context.problem();
  if (p.direction != Direction::both) return CheckResult::not_applicable("needs forward and backward");
  if (!plain_conventions(context)) return CheckResult::not_applicable("the kernel has another convention for empty rows or lse");
  const auto infinite = [](double lse) { return !std::isfinite(lse) && lse != -std::numeric_limits<double>::infinity(); };
  if (std::ranges::any_of(context.truth().exact.lse, infinite)) return CheckResult::not_applicable("rows that are not finite");
  if (p.total_q() == 0 || p.total_k() == 0) return CheckResult::not_applicable("no queries or no keys");
  std::vector<TensorId> ids = {TensorId::v};
  if (p.softcap == 0) ids.insert(ids.end(), 2, TensorId::q);
  if (p.softcap == 0 && work_of_k(p) <= kMostWork * kSteps) ids.push_back(TensorId::k);
  const TensorId id = ids[static_cast<std::size_t>(context.below(std::ssize(ids), "derivative"))];
  if (is_expanded(p, id)) return CheckResult::not_applicable("an expanded tensor has no element of its own");
  return Derivative(context, id).run();
}

}  // namespace

const CheckUnit kDerivative = {"derivative", "the backward is the derivative of the kernel's own forward, by central differences",
                               "K10 K12 K13 K27 M06 M26", 3, run};

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
#include "tests/support/faulty_world.h"

#include <cmath>
#include <cstdlib>
#include <limits>

#include "tests/support/philox.h"
#include "tests/support/slow_oracle.h"

namespace attest::testing_support {
namespace {

std::int64_t shift_of(const Problem& p, Causal causal, std::int64_t b) { return causal == Causal::top_left ? 0 : p.seq_k[b] - p.seq_q[b]; }

bool kept_by(const Problem& p, std::int64_t lane, std::int64_t block, std::int64_t second, std::int64_t third) {
  const auto w = [](std::int64_t x) { return static_cast<std::uint32_t>(x); };
  const std::uint64_t seed = p.dropout->seed;
  const auto words = slow::philox4x32({w(block), w(second), w(third), w(static_cast<std::int64_t>(p.dropout->offset))},
                                {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return static_cast<double>(words[static_cast<std::size_t>(lane)]) < (1 - p.effective_dropout()) * 0x1p32;
}

}  // namespace

World right_world(const Problem& problem, const Inputs& in, const StoredInputs& stored) {
  World w;
  w.p = problem;
  const auto& t = stored.tensors;
  const StoredTensorValues *q = &t[0], *k = &t[1], *v = &t[2], *d_o = &t[4];
  w.keys = [problem](std::int64_t b) { return problem.seq_k[b]; };
  w.token = [](std::int64_t, std::int64_t i) { return i; };
  w.q = [=](std::int64_t b, std::int64_t h, std::int64_t i) { return q->row(b, row_of_token(problem, TensorId::q, b, i), h); };
  w.d_o = [=](std::int64_t b, std::int64_t h, std::int64_t i) { return d_o->row(b, row_of_token(problem, TensorId::q, b, i), h); };
  const std::int64_t group = problem.heads_q / problem.heads_kv;
  w.k = [=](std::int64_t b, std::int64_t h, std::int64_t, std::int64_t j) { return k->row(b, row_of_token(problem, TensorId::k, b, 0) + j, h / group); };
  w.v = [=](std::int64_t b, std::int64_t h, std::int64_t, std::int64_t j) { return v->row(b, row_of_token(problem, TensorId::k, b, 0) + j, h / group); };
  w.dot = [dim = problem.dim](const double* a, const double* c) {
    double sum = 0;
    for (std::int64_t d = 0; d < dim; ++d) sum += a[d] * c[d];
    return sum;
  };
  w.see = [problem, &in](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) { return slow::visible(problem, in.mask, in.block_mask, b, h, i, j); };
  const double scale = problem.effective_scale(), cap = problem.effective_softcap();
  w.score = [=, &in](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, double product) {
    double s = product * scale;
    if (cap > 0) s = cap * std::tanh(s / cap);
    if (problem.bias) s += in.bias.at(b, h, i, j);
    if (problem.alibi) s -= in.alibi_slopes[h] * static_cast<double>(std::abs(i + problem.seq_k[b] - problem.seq_q[b] - j));
    return s;
  };
  w.keep = [problem](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    return !problem.dropout ? 1 : slow::kept(problem, b, h, i, j) ? 1 / (1 - problem.effective_dropout()) : 0;
  };
  w.slope = [=](double product) { return cap > 0 ? 1 - std::pow(std::tanh(product * scale / cap), 2) : 1; };
  return w;
}

namespace {

void use_problem(World& w, const Problem& changed, const Inputs& in, const StoredInputs& stored) {
  const std::string fault = w.fault;
  const std::int64_t number = w.number, tile = w.tile;
  w = right_world(changed, in, stored);
  w.fault = fault;
  w.number = number;
  w.tile = tile;
}

}  // namespace

World wrong_world(const Problem& problem, const Inputs& in, const StoredInputs& stored, const Fault& fault) {
  World w = right_world(problem, in, stored);
  w.fault = fault.cause;
  w.number = fault.number;
  if (fault.tile > 0) w.tile = fault.tile;
  const std::string& f = fault.cause;
  Problem p = problem;
  const auto& t = stored.tensors;
  const std::int64_t Hq = p.heads_q, Hkv = p.heads_kv, group = Hq / Hkv, step = fault.number;
  const StoredTensorValues *q = &t[0], *k = &t[1], *v = &t[2], *d_o = &t[4];
  const auto first_k = [problem](std::int64_t b) { return row_of_token(problem, TensorId::k, b, 0); };
  const auto scaled = [&](double scale) {
    p.scale = scale;
    use_problem(w, p, in, stored);
  };
  const auto open_diagonal = [&](std::int64_t more) {
    Problem open = problem;
    if (open.window && open.window->alignment == Causal::none) open.window->alignment = problem.causal;
    open.causal = Causal::none;
    w.see = [=, &in](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
      return slow::visible(open, in.mask, in.block_mask, b, h, i, j) && j <= i + shift_of(problem, problem.causal, b) + more;
    };
  };
  if (f == "causal-top-left" || f == "causal-bottom-right") {
    p.causal = f == "causal-top-left" ? Causal::top_left : Causal::bottom_right;
    use_problem(w, p, in, stored);
  } else if (f == "causal-dropped") {
    open_diagonal(1 << 20);
  } else if (f == "causal-one-more") {
    open_diagonal(1);
  } else if (f == "causal-one-fewer") {
    open_diagonal(-1);
  } else if (f == "causal-added") {
    open_diagonal(0);
  } else if (f.starts_with("window-left")) {
    p.window->left += step;
    use_problem(w, p, in, stored);
  } else if (f.starts_with("window-right")) {
    p.window->right += step;
    use_problem(w, p, in, stored);
  } else if (f == "window-ignored") {
    p.window.reset();
    use_problem(w, p, in, stored);
  } else if (f == "window-alignment") {
    p.window->alignment = p.window->alignment == Causal::top_left ? Causal::bottom_right : Causal::top_left;
    use_problem(w, p, in, stored);
  } else if (f == "mask-ignored") {
    p.mask.reset();
    use_problem(w, p, in, stored);
  } else if (f == "block-ignored") {
    p.block.reset();
    use_problem(w, p, in, stored);
  } else if (f == "padding-side") {
    p.pad = p.pad == PadSide::left ? PadSide::right : PadSide::left;
    use_problem(w, p, in, stored);
    w.token = [problem, p](std::int64_t b, std::int64_t i) {
      const std::int64_t seen = row_of_token(problem, TensorId::q, b, i) - row_of_token(p, TensorId::q, b, 0);
      return seen < p.seq_q[b] ? seen : -1;
    };
  } else if (f == "lengths-ignored") {
    p.seq_q.assign(p.seq_q.size(), p.rows_q());
    p.seq_k.assign(p.seq_k.size(), p.rows_k());
    use_problem(w, p, in, stored);
    w.token = [problem](std::int64_t b, std::int64_t i) { return row_of_token(problem, TensorId::q, b, i); };
  } else if (f.starts_with("offsets-k")) {
    w.k = [=](std::int64_t b, std::int64_t h, std::int64_t, std::int64_t j) { return k->row(b, first_k(b) + j + step, h / group); };
    w.v = [=](std::int64_t b, std::int64_t h, std::int64_t, std::int64_t j) { return v->row(b, first_k(b) + j + step, h / group); };
  } else if (f.starts_with("offsets-q")) {
    w.q = [=](std::int64_t b, std::int64_t h, std::int64_t i) { return q->row(b, row_of_token(problem, TensorId::q, b, i) + step, h); };
    w.d_o = [=](std::int64_t b, std::int64_t h, std::int64_t i) { return d_o->row(b, row_of_token(problem, TensorId::q, b, i) + step, h); };
  } else if (f == "heads-modulo") {
    w.k = [=](std::int64_t b, std::int64_t h, std::int64_t, std::int64_t j) { return k->row(b, first_k(b) + j, h % Hkv); };
    w.v = [=](std::int64_t b, std::int64_t h, std::int64_t, std::int64_t j) { return v->row(b, first_k(b) + j, h % Hkv); };
  } else if (f == "k-of-another-head") {
    w.k = [=](std::int64_t b, std::int64_t h, std::int64_t, std::int64_t j) { return k->row(b, first_k(b) + j, (h / group + 1) % Hkv); };
  } else if (f == "v-of-another-head") {
    w.v = [=](std::int64_t b, std::int64_t h, std::int64_t, std::int64_t j) { return v->row(b, first_k(b) + j, (h / group + 1) % Hkv); };
  } else if (f == "v-of-another-sequence") {
    const std::int64_t batch = p.batch();
    w.v = [=](std::int64_t b, std::int64_t h, std::int64_t, std::int64_t j) { return v->row((b + 1) % batch, first_k((b + 1) % batch) + j, h / group); };
  } else if (f == "q-k-swapped") {
    w.q = [=](std::int64_t b, std::int64_t h, std::int64_t i) { return k->row(b, first_k(b) + i, h); };
    w.k = [=](std::int64_t b, std::int64_t h, std::int64_t, std::int64_t j) { return q->row(b, first_k(b) + j, h); };
  } else if (f == "k-transposed") {
    // Gathered per call: element (j, d) lies where (d, j) of a [D, Sk] matrix would.
    w.k = [=](std::int64_t b, std::int64_t h, std::int64_t, std::int64_t j) {
      static thread_local std::vector<double> row;
      row.assign(static_cast<std::size_t>(problem.dim), 0);
      for (std::int64_t d = 0; d < problem.dim; ++d) {
        const std::int64_t at = d * problem.seq_k[b] + j;
        row[d] = k->row(b, first_k(b) + at / problem.dim, h / group)[at % problem.dim];
      }
      return static_cast<const double*>(row.data());
    };
  } else if (f == "attends-over-heads") {
    w.keys = [Hkv](std::int64_t) { return Hkv; };
    w.k = [=](std::int64_t b, std::int64_t, std::int64_t i, std::int64_t j) { return k->row(b, first_k(b) + i, j); };
    w.v = [=](std::int64_t b, std::int64_t, std::int64_t i, std::int64_t j) { return v->row(b, first_k(b) + i, j); };
    const bool causal = p.causal != Causal::none;
    w.see = [causal](std::int64_t, std::int64_t h, std::int64_t, std::int64_t j) { return !causal || j <= h; };
    const double scale = p.effective_scale();
    w.score = [scale](std::int64_t, std::int64_t, std::int64_t, std::int64_t, double product) { return product * scale; };
  } else if (f == "layout-flat-order") {
    const bool bhsd = p.layout == Layout::bhsd;
    const auto flat = [bhsd](const StoredTensorValues* x, std::int64_t b, std::int64_t r, std::int64_t h) {
      const Extents& e = x->extents;
      const std::int64_t line = bhsd ? r * e.heads + h : h * e.rows + r;
      return x->data.data() + (b * (e.batch == 1 ? 0 : 1) * e.rows * e.heads + line) * e.width;
    };
    w.q = [=](std::int64_t b, std::int64_t h, std::int64_t i) { return flat(q, b, row_of_token(problem, TensorId::q, b, i), h); };
    w.d_o = [=](std::int64_t b, std::int64_t h, std::int64_t i) { return flat(d_o, b, row_of_token(problem, TensorId::q, b, i), h); };
    w.k = [=](std::int64_t b, std::int64_t h, std::int64_t, std::int64_t j) { return flat(k, b, first_k(b) + j, h / group); };
    w.v = [=](std::int64_t b, std::int64_t h, std::int64_t, std::int64_t j) { return flat(v, b, first_k(b) + j, h / group); };
  } else if (f == "scale-1") {
    scaled(1);
  } else if (f == "scale-1/D") {
    scaled(1.0 / static_cast<double>(p.dim));
  } else if (f == "scale-1/sqrt(Dv)") {
    scaled(1 / std::sqrt(static_cast<double>(p.width_v())));
  } else if (f == "scale-default") {
    scaled(1 / std::sqrt(static_cast<double>(p.dim)));
  } else if (f == "scale-twice") {
    scaled(p.effective_scale() * p.effective_scale());
  } else if (f == "log2e-missing" || f == "log2e-twice") {
    const double factor = f == "log2e-missing" ? std::log(2.0) : 1 / std::log(2.0);
    w.score = [inner = w.score, factor](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, double x) { return factor * inner(b, h, i, j, x); };
  } else if (f == "softcap-before-scale") {
    const double cap = p.effective_softcap(), scale = p.effective_scale();
    p.softcap = 0;
    const World plain = right_world(p, in, stored);
    w.score = [=](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, double x) { return plain.score(b, h, i, j, cap * std::tanh(x / cap)); };
    w.slope = [=](double x) { return 1 - std::pow(std::tanh(x / cap), 2) + 0 * scale; };
  } else if (f == "softcap-ignored") {
    p.softcap = 0;
    use_problem(w, p, in, stored);
  } else if (f == "alibi-sign" || f == "alibi-ignored" || f == "alibi-top-left") {
    Problem without = p;
    without.alibi = false;
    const World plain = right_world(without, in, stored);
    w.score = [=, &in](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, double x) {
      const std::int64_t shift = f == "alibi-top-left" ? 0 : problem.seq_k[b] - problem.seq_q[b];
      const double slope = in.alibi_slopes[h] * (f == "alibi-sign" ? 1 : f == "alibi-ignored" ? 0 : -1);
      return plain.score(b, h, i, j, x) + slope * static_cast<double>(std::abs(i + shift - j));
    };
  } else if (f.starts_with("bias-")) {
    Problem without = p;
    without.bias.reset();
    const World plain = right_world(without, in, stored);
    w.score = [=, &in](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, double x) {
      const double s = plain.score(b, h, i, j, x);
      if (f == "bias-ignored") return s;
      if (f == "bias-of-first-head") return s + in.bias.at(b, 0, i, j);
      if (f == "bias-of-first-sequence") return s + in.bias.at(0, h, i, j);
      return j < in.bias.extent_q && i < in.bias.extent_k ? s + in.bias.at(b, h, j, i) : s;
    };
  } else if (f.starts_with("dropout-")) {
    const double d = p.effective_dropout();
    const auto keep = [&](std::function<double(std::int64_t, std::int64_t, std::int64_t, std::int64_t)> fn) { w.keep = std::move(fn); };
    Problem other = p;
    if (f == "dropout-ignored") keep([](auto, auto, auto, auto) { return 1.0; });
    if (f == "dropout-unscaled") keep([=](auto b, auto h, auto i, auto j) { return slow::kept(problem, b, h, i, j) ? 1.0 : 0.0; });
    if (f == "dropout-scaled-twice") keep([=](auto b, auto h, auto i, auto j) { return slow::kept(problem, b, h, i, j) ? 1 / (1 - d) / (1 - d) : 0.0; });
    if (f == "dropout-scale-1/p") keep([=](auto b, auto h, auto i, auto j) { return slow::kept(problem, b, h, i, j) ? 1 / d : 0.0; });
    if (f == "dropout-keeps-p" || f == "dropout-p-for-1-p") {
      other.dropout->p = 1 - d;
      const double factor = f == "dropout-keeps-p" ? 1 / (1 - d) : 1 / d;
      keep([=](auto b, auto h, auto i, auto j) { return slow::kept(other, b, h, i, j) ? factor : 0.0; });
    }
    if (f == "dropout-seed" || f == "dropout-offset") {
      if (f == "dropout-seed") other.dropout->seed += 1;
      if (f == "dropout-offset") other.dropout->offset += 1;
      keep([=](auto b, auto h, auto i, auto j) { return slow::kept(other, b, h, i, j) ? 1 / (1 - d) : 0.0; });
    }
    if (f == "dropout-head") keep([=](auto b, auto h, auto i, auto j) { return slow::kept(problem, b, (h + 1) % Hq, i, j) ? 1 / (1 - d) : 0.0; });
    if (f == "dropout-counter") {
      keep([=](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
        const bool yes = step == 0 ? kept_by(problem, i % 4, i / 4, j, b * Hq + h)
                                   : kept_by(problem, (((b * Hq + h) * problem.max_q() + i) * problem.max_k() + j) % 4,
                                             (((b * Hq + h) * problem.max_q() + i) * problem.max_k() + j) / 4, 0, 0);
        return yes ? 1 / (1 - d) : 0.0;
      });
    }
  } else if (f == "last-tile-dropped") {
    w.see = [inner = w.see, tile = w.tile, problem](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
      return j < (problem.seq_k[b] - 1) / tile * tile && inner(b, h, i, j);
    };
  } else if (f.starts_with("stale-")) {
    const auto behind = [tile = w.tile, step](auto inner) {
      return [=](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) { return inner(b, h, i, j / tile == step ? j - tile : j); };
    };
    if (f != "stale-v") w.k = behind(w.k);
    if (f != "stale-k") w.v = behind(w.v);
  }
  return w;
}

const double* nan_row() {
  static const std::vector<double> row(4096, std::numeric_limits<double>::quiet_NaN());
  return row.data();
}

}  // namespace attest::testing_support

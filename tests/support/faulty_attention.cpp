// SPDX-License-Identifier: Apache-2.0
#include "tests/support/faulty_attention.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "tests/support/faulty_world.h"

namespace attest::testing_support {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Row {
  std::vector<double> s, p, keep, slope;
  std::vector<double> o;
  double lse = -kInfinity;         // as reported
  double true_lse = -kInfinity;
  bool written = true;
};

Row forward_row(const World& w, std::int64_t b, std::int64_t h, std::int64_t token) {
  Row row;
  const std::int64_t i = w.token(b, token);
  row.written = i >= 0;
  row.o.assign(static_cast<std::size_t>(w.p.width_v()), 0);
  if (!row.written) return row;
  const std::int64_t n = w.keys(b), width = w.p.width_v();
  const double* q = w.q(b, h, i);
  row.written = q != nan_row();  // what lies outside of a tensor is nobody's business
  if (!row.written) return row;
  double unmasked = 0, unscaled = 0, kept = 0, top_raw = -kInfinity;
  for (std::int64_t j = 0; j < n; ++j) {
    const double product = w.dot(q, w.k(b, h, i, j));
    const double s = w.score(b, h, i, j, product);
    const bool see = w.see(b, h, i, j);
    if (see && (w.k(b, h, i, j) == nan_row() || w.v(b, h, i, j) == nan_row())) {
      row.written = false;
      return row;
    }
    row.s.push_back(see ? s : -kInfinity);
    row.slope.push_back(w.slope(product));
    row.keep.push_back(w.keep(b, h, i, j));
    unmasked += std::exp(s);
    if (see) unscaled += std::exp(s / w.p.effective_scale());
    if (see) top_raw = std::max(top_raw, s / w.p.effective_scale());
  }
  double top = -kInfinity, sum = 0;
  for (std::int64_t first = 0; first < n; first += w.tile) {
    const std::int64_t end = std::min(n, first + w.tile);
    const bool is_last = end == n;
    for (int pass = 0; pass < (w.fault == "last-tile-twice" && is_last ? 2 : 1); ++pass) {
      double next = top;
      for (std::int64_t j = first; j < end; ++j) next = std::max(next, row.s[j]);
      if (next == -kInfinity) continue;
      const double rescale = std::exp(top - next);
      const bool forgets = top != -kInfinity && (w.fault == "never-rescaled" || (w.fault == "not-rescaled" && first / w.tile == w.number));
      sum *= rescale;
      for (double& o : row.o) o *= forgets ? 1 : rescale;
      top = next;
      for (std::int64_t j = first; j < end; ++j) {
        const double weight = std::exp(row.s[j] - top);
        if (weight == 0) continue;
        sum += weight;
        const double* v = w.v(b, h, i, j);
        for (std::int64_t c = 0; c < width; ++c) row.o[c] += weight * row.keep[j] * v[c];
      }
    }
  }
  row.p.assign(row.s.size(), 0);
  if (top == -kInfinity) {
    if (w.fault == "empty-lse-positive") row.lse = kInfinity;
    if (w.fault == "empty-row-nan") row.o.assign(row.o.size(), std::numeric_limits<double>::quiet_NaN());
    for (std::int64_t j = 0; w.fault == "empty-row-mean" && j < n; ++j) {
      for (std::int64_t c = 0; c < width; ++c) row.o[c] += w.v(b, h, i, j)[c] / static_cast<double>(n);
    }
    return row;
  }
  for (double& o : row.o) o /= sum;
  row.true_lse = row.lse = top + std::log(sum);
  for (std::size_t j = 0; j < row.s.size(); ++j) {
    row.p[j] = std::exp(row.s[j] - row.lse);
    kept += row.p[j] * row.keep[j];
  }
  if (w.fault == "lse-base-2") row.lse /= std::log(2.0);
  if (w.fault == "lse-unscaled") row.lse = std::log(unscaled);
  if (w.fault == "lse-max-unscaled") row.lse = top_raw + std::log(sum);
  if (w.fault == "lse-without-max") row.lse = std::log(sum);
  if (w.fault == "lse-unmasked") row.lse = std::log(unmasked);
  if (w.fault == "lse-after-dropout") row.lse += std::log(kept);
  return row;
}

double delta_of(const World& w, const Inputs& in, const std::function<Row(std::int64_t, std::int64_t)>& forward, std::int64_t b,
                std::int64_t h, std::int64_t i, std::int64_t first) {
  if (w.fault == "delta-missing") return 0;
  if (w.fault == "delta-of-another-row") i = std::clamp<std::int64_t>(i + w.number, 0, w.p.seq_q[b] - 1);
  if (w.fault == "delta-of-another-head") h = (h + 1) % w.p.heads_q;
  const Row row = forward(h, i);
  const double* d_o = w.d_o(b, h, w.token(b, i));
  double delta = 0;
  for (std::size_t c = 0; c < row.o.size(); ++c) delta += d_o[c] * row.o[c];
  if (!in.d_lse.empty() && w.fault != "dlse-ignored") delta -= in.d_lse[static_cast<std::size_t>((first + i) * w.p.heads_q + h)];
  return delta;
}

}  // namespace

const double* StoredTensorValues::row(std::int64_t b, std::int64_t r, std::int64_t h) const {
  if (r < 0 || r >= extents.rows) return nan_row();
  return data.data() + (extents.batch == 1 ? 0 : b) * strides.batch + r * strides.seq + h * strides.head;
}

StoredInputs store(const Problem& problem, const Inputs& inputs, std::uint64_t seed) {
  StoredInputs stored;
  Problem plain = problem;
  plain.strides = {};
  const auto place = [&](TensorId id, const Values& values) {
    StoredTensorValues& t = stored.tensors[static_cast<std::size_t>(id)];
    t.extents = extents_of(plain, id);
    t.strides = strides_of(plain, id);
    t.data.resize(static_cast<std::size_t>(t.extents.batch * t.extents.rows * t.extents.heads * t.extents.width));
    for (std::size_t n = 0; n < t.data.size(); ++n) {
      const std::uint64_t word = random_word(seed, 100 + static_cast<std::uint64_t>(id), n);
      t.data[n] = round_to(problem.dtype, static_cast<double>(word >> 11) * 0x1p-52 - 1);
    }
    const auto& lengths = is_query_side(id) ? problem.seq_q : problem.seq_k;
    std::int64_t token = 0;
    for (std::int64_t b = 0; b < problem.batch(); ++b) {
      for (std::int64_t i = 0; i < lengths[b]; ++i, ++token) {
        for (std::int64_t h = 0; h < values.heads; ++h) {
          const auto row = values.row(token, h);
          std::copy(row.begin(), row.end(), t.data.begin() + offset_of(plain, id, b, i, h));
        }
      }
    }
  };
  place(TensorId::q, inputs.q);
  place(TensorId::k, inputs.k);
  place(TensorId::v, inputs.v);
  if (!inputs.d_o.empty()) place(TensorId::d_o, inputs.d_o);
  return stored;
}

Exact faulty_attention(const Problem& problem, const Inputs& inputs, const StoredInputs& stored, const Fault& fault) {
  // Packed sequences taken for one are another problem over the same tokens.
  if (fault.cause == "sequences-merged") {
    Problem one = problem;
    one.seq_q = {problem.total_q()};
    one.seq_k = {problem.total_k()};
    return faulty_attention(one, inputs, stored, {"", 0, 0, Where::both});
  }
  const World right = right_world(problem, inputs, stored);
  const World wrong = wrong_world(problem, inputs, stored, fault);
  const World& forward = fault.where == Where::backward ? right : wrong;
  const World& backward = fault.where == Where::forward ? right : wrong;
  const bool consistent = fault.where == Where::both;
  Exact out;
  const std::int64_t Hq = problem.heads_q, group = problem.group();
  out.o = Values(problem.total_q(), Hq, problem.width_v());
  out.lse.assign(static_cast<std::size_t>(problem.total_q() * Hq), 0);
  if (problem.wants_backward()) {
    out.dq = Values(problem.total_q(), Hq, problem.dim);
    out.dk = Values(problem.total_k(), problem.heads_kv, problem.dim);
    out.dv = Values(problem.total_k(), problem.heads_kv, problem.width_v());
  }
  if (problem.d_bias) {
    out.d_bias = inputs.bias;
    std::fill(out.d_bias.data.begin(), out.d_bias.data.end(), 0);
  }
  std::int64_t first_q = 0, first_k = 0;
  for (std::int64_t b = 0; b < problem.batch(); first_q += problem.seq_q[b], first_k += problem.seq_k[b], ++b) {
    for (std::int64_t h = 0; h < Hq; ++h) {
      for (std::int64_t i = 0; i < problem.seq_q[b]; ++i) {
        const Row row = forward_row(forward, b, h, i);
        std::copy(row.o.begin(), row.o.end(), out.o.row(first_q + i, h).begin());
        out.lse[static_cast<std::size_t>((first_q + i) * Hq + h)] = row.lse;
        if (!row.written) {
          for (double& o : out.o.row(first_q + i, h)) o = 0;
          out.lse[static_cast<std::size_t>((first_q + i) * Hq + h)] = 0;
        }
        if (!problem.wants_backward() || !row.written) continue;
        const World& w = backward;
        const Row own = forward_row(w, b, h, i);
        if (!own.written) continue;
        const World& source = consistent ? backward : forward;
        const double delta = delta_of(w, inputs, [&](std::int64_t h2, std::int64_t i2) { return forward_row(source, b, h2, i2); }, b, h, i, first_q);
        const std::int64_t at = w.token(b, i);
        const double *d_o = w.d_o(b, h, at), *q = w.q(b, h, at);
        const double scale = w.p.effective_scale();
        const bool in_group = w.fault == "group-first-head" ? h % group == 0 : w.fault == "group-last-head" ? h % group == group - 1 : true;
        const std::int64_t own_head = w.fault == "heads-modulo" ? h % problem.heads_kv : h / group;
        const std::int64_t k_head = w.fault == "k-of-another-head" ? (own_head + 1) % problem.heads_kv : own_head;
        const std::int64_t v_head = w.fault == "v-of-another-head" ? (own_head + 1) % problem.heads_kv : own_head;
        for (std::int64_t j = 0; j < w.keys(b); ++j) {
          if (own.s[j] == -kInfinity) continue;
          const double p = consistent ? own.p[j] : std::isinf(row.lse) ? 0 : std::exp(own.s[j] - row.lse);
          const double* v = w.v(b, h, at, j);
          double dp = 0;
          for (std::int64_t c = 0; c < problem.width_v(); ++c) dp += d_o[c] * v[c];
          const double* k = w.k(b, h, at, j);
          const double slope = w.fault == "softcap-slope-missing" ? 1 : own.slope[j];
          const double ds = p * (dp * own.keep[j] - delta) * slope;
          if (problem.d_bias && j < problem.seq_k[b]) {
            const bool first = (inputs.bias.extent_b > 1 || b == 0) && (inputs.bias.extent_h > 1 || h == 0);
            const bool last = (inputs.bias.extent_b > 1 || b == problem.batch() - 1) && (inputs.bias.extent_h > 1 || h == Hq - 1);
            const double own_ds = p * (dp * own.keep[j] - delta) * (w.fault == "dbias-scaled" ? scale : 1) * (w.fault == "dbias-in-softcap" ? own.slope[j] : 1);
            if ((w.fault != "dbias-of-first" || first) && (w.fault != "dbias-of-last" || last)) out.d_bias.data[inputs.bias.index(b, h, i, j)] += own_ds;
          }
          for (std::int64_t d = 0; d < problem.dim; ++d) out.dq.at(first_q + i, h, d) += ds * k[d] * (w.fault == "dq-unscaled" ? 1 : scale);
          if (!in_group || j >= problem.seq_k[b]) continue;
          for (std::int64_t d = 0; d < problem.dim; ++d) out.dk.at(first_k + j, k_head, d) += ds * q[d] * (w.fault == "dk-unscaled" ? 1 : scale);
          const double keep = w.fault == "dv-undropped" ? 1 : own.keep[j];
          for (std::int64_t c = 0; c < problem.width_v(); ++c) out.dv.at(first_k + j, v_head, c) += p * keep * d_o[c];
        }
      }
    }
  }
  return out;
}

}  // namespace attest::testing_support

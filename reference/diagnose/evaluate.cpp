// SPDX-License-Identifier: Apache-2.0
// Where a reading finds its rows, its scores and its masks.
#include "reference/diagnose/evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/oracle/visibility.h"

namespace attest::diagnose {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

double norm(const double* x, std::int64_t n) { return std::sqrt(Eigen::Map<const Eigen::VectorXd>(x, n).squaredNorm()); }

/// Storage row and head at which `reading` looks for (row, h) of a tensor with these extents.
std::pair<std::int64_t, std::int64_t> found_at(const Reading& reading, const Extents& extents, std::int64_t row,
                                               std::int64_t h) {
  if (reading.heads_and_rows != HeadsAndRows::flat_order) return {row, h};
  if (reading.problem.layout == Layout::bhsd) {
    const std::int64_t flat = row * extents.heads + h;
    return {flat % extents.rows, flat / extents.rows};
  }
  const std::int64_t flat = h * extents.rows + row;
  return {flat / extents.heads, flat % extents.heads};
}

/// The keys of the last two heads; rows come head by head.
struct FoundKeys {
  const Reading* reading = nullptr;
  std::int64_t b = 0;
  std::int64_t h = 0;
  std::shared_ptr<const void> keys;
};
thread_local std::array<FoundKeys, 2> elsewhere;

}  // namespace

Evaluator::Evaluator(const Evidence& evidence) : evidence_(evidence) {}

/// The token that the reading takes this storage row for.
bool Evaluator::place(const Reading& reading, const RowAt& at, RowAt& placed) const {
  const std::int64_t row = row_of_token(evidence_.problem, TensorId::q, at.b, at.i);
  placed = at;
  if (reading.merged) placed.b = 0;
  placed.i = row - row_of_token(reading.problem, TensorId::q, placed.b, 0);
  return placed.i >= 0 && placed.i < reading.problem.seq_q[placed.b];
}

bool Evaluator::read_query(const Reading& reading, TensorId id, const RowAt& at, std::vector<double>& out) const {
  const bool swapped = reading.swap_qk && id == TensorId::q;
  const TensorRows& tensor = evidence_.of(swapped ? TensorId::k : id);
  out.resize(static_cast<std::size_t>(tensor.extents().width));
  const std::int64_t token_row = row_of_token(reading.problem, TensorId::q, at.b, at.i) + reading.shift_q;
  const auto [row, h] = found_at(reading, tensor.extents(), token_row, at.h);
  return tensor.read(at.b, row, h, out);
}

Evaluator::KeysPtr Evaluator::read_keys(const Reading& r, const RowAt& at) const {
  auto keys = std::make_shared<Keys>();
  const Problem& p = r.problem;
  const TensorRows& k = evidence_.of(r.swap_qk ? TensorId::q : TensorId::k);
  const TensorRows& v = evidence_.of(TensorId::v);
  const bool over_heads = r.heads_and_rows == HeadsAndRows::attend_over_heads;
  const std::int64_t n = over_heads ? p.heads_kv : p.seq_k[at.b];
  const std::int64_t first = row_of_token(p, TensorId::k, at.b, 0) + r.shift_k;
  const std::int64_t v_b = (at.b + r.v_batch) % p.batch();
  const std::int64_t v_first = row_of_token(p, TensorId::k, v_b, 0) + r.shift_k;
  // A call without keys may have no tensors to take the widths from.
  keys->k.resize(n, p.dim);
  keys->v.resize(n, p.width_v());
  const auto read = [](const TensorRows& tensor, std::int64_t b, std::pair<std::int64_t, std::int64_t> where, Matrix& to,
                       std::int64_t j) {
    return tensor.read(b, where.first, where.second, {to.row(j).data(), static_cast<std::size_t>(to.cols())});
  };
  for (std::int64_t j = 0; j < n; ++j) {
    if (over_heads) {
      read(k, at.b, {first + at.i, j}, keys->k, j);
      read(v, at.b, {first + at.i, j}, keys->v, j);
      continue;
    }
    const bool stale = r.tile_fault >= TileFault::stale_k && j / r.tile == r.at && r.at > 0;
    const std::int64_t k_row = j - (stale && r.tile_fault != TileFault::stale_v ? r.tile : 0);
    const std::int64_t v_row = j - (stale && r.tile_fault != TileFault::stale_k ? r.tile : 0);
    const bool has_k = read(k, at.b, found_at(r, k.extents(), first + k_row, key_head(r, at.h)), keys->k, j);
    const bool has_v = read(v, v_b, found_at(r, v.extents(), v_first + v_row, value_head(r, at.h)), keys->v, j);
    if (!has_k || !has_v) keys->outside.push_back(j);
  }
  if (r.transpose_k && n > 0) {
    const Matrix stored = keys->k;
    const double* flat = stored.data();
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t d = 0; d < stored.cols(); ++d) keys->k(j, d) = flat[d * n + j];
    }
  }
  for (std::int64_t j = 0; j < n; ++j) {
    keys->j.push_back(j);
    keys->k_norm.push_back(norm(keys->k.row(j).data(), keys->k.cols()));
    keys->v_norm.push_back(norm(keys->v.row(j).data(), keys->v.cols()));
  }
  return keys;
}

void Evaluator::forget_keys() { elsewhere.fill({}); }

Evaluator::KeysPtr Evaluator::keys_for(const Reading& reading, const RowAt& at) const {
  if (!reading.keys_as_stored(evidence_.problem)) {
    if (reading.heads_and_rows == HeadsAndRows::attend_over_heads) return read_keys(reading, at);
    for (const FoundKeys& found : elsewhere) {
      if (found.reading == &reading && found.b == at.b && found.h == at.h) return std::static_pointer_cast<const Keys>(found.keys);
    }
    std::swap(elsewhere[0], elsewhere[1]);
    elsewhere[0] = {&reading, at.b, at.h, read_keys(reading, at)};
    return std::static_pointer_cast<const Keys>(elsewhere[0].keys);
  }
  const auto key = std::tuple(at.b, key_head(reading, at.h), value_head(reading, at.h));
  const std::lock_guard lock(mutex_);
  KeysPtr& keys = shared_keys_[key];
  if (keys == nullptr) keys = read_keys(reading, at);
  return keys;
}

void Evaluator::mask(const Reading& r, const Keys& keys, SoftRow& row) const {
  const RowAt& at = row.at;
  const Problem& p = r.problem;
  const auto n = static_cast<std::int64_t>(row.score.size());
  KeyRange range = key_range(p, at.b, at.i);
  if (r.heads_and_rows == HeadsAndRows::attend_over_heads) {
    Problem heads = p;
    heads.seq_q.assign(p.seq_q.size(), p.heads_q);
    heads.seq_k.assign(p.seq_k.size(), p.heads_kv);
    range = key_range(heads, at.b, at.h);
  }
  if (r.causal_less != 0) {
    const std::int64_t shift = p.causal == Causal::top_left ? 0 : p.seq_k[at.b] - p.seq_q[at.b];
    range.last = std::min(range.last, at.i + shift + 1 - r.causal_less);
  }
  const Inputs& in = evidence_.operands;
  for (std::int64_t x = 0; x < n; ++x) {
    const std::int64_t j = keys.j[x];
    bool shown = j >= range.first && j < range.last;
    const bool in_mask = p.mask && (in.mask.extent_k == 1 || j < in.mask.extent_k) && at.i < evidence_.problem.max_q();
    if (shown && in_mask) shown = in.mask.at(at.b, at.h, at.i, j) != 0;
    if (shown && p.block && j / p.block->cols < in.block_mask.extent_k && at.i / p.block->rows < in.block_mask.extent_q) {
      shown = in.block_mask.at(at.b, at.h, at.i / p.block->rows, j / p.block->cols) != 0;
    }
    if (r.tile_fault == TileFault::last_dropped && j / r.tile == (n - 1) / r.tile) shown = false;
    if (!shown) row.score[x] = kHidden;
  }
}

void Evaluator::score(const Reading& r, const Keys& keys, SoftRow& row) const {
  const Problem& p = r.problem;
  const RowAt& at = row.at;
  const std::int64_t n = keys.k.rows();
  row.score.assign(static_cast<std::size_t>(n), 0);
  row.slope.assign(static_cast<std::size_t>(n), 1);
  Eigen::Map<Eigen::VectorXd> s(row.score.data(), n);
  s = keys.k * Eigen::Map<const Eigen::VectorXd>(row.q.data(), keys.k.cols());
  const double scale = p.effective_scale();
  const double cap = p.effective_softcap();
  const double unit = evidence_.numerics.u;
  const double q_norm = norm(row.q.data(), keys.k.cols());
  const double terms = static_cast<double>(p.dim) / 8 + 8;
  double error = 0;
  for (std::int64_t at_key = 0; at_key < n; ++at_key) {
    const std::int64_t j = keys.j[at_key];
    double& x = row.score[at_key];
    const double inner = r.cap_before_scale ? x : x * scale;
    if (cap > 0) {
      const double secant = 1 / std::cosh(inner / cap);
      row.slope[at_key] = secant * secant;
      x = cap * std::tanh(inner / cap) * (r.cap_before_scale ? scale : 1);
    } else {
      x = x * scale;
    }
    if (p.bias) {
      const Operand<double>& bias = evidence_.operands.bias;
      const std::int64_t h = r.bias == BiasUse::of_first_head ? 0 : at.h;
      const std::int64_t b = r.bias == BiasUse::of_first_sequence ? 0 : at.b;
      const bool turned = r.bias == BiasUse::transposed;
      const std::int64_t i = turned ? j : at.i;
      const std::int64_t column = turned ? at.i : j;
      if ((bias.extent_k == 1 || column < bias.extent_k) && (bias.extent_q == 1 || i < bias.extent_q)) x += bias.at(b, h, i, column);
    }
    if (p.alibi) {
      const std::int64_t diagonal = r.alibi_top_left ? at.i : at.i + p.seq_k[at.b] - p.seq_q[at.b];
      x -= r.alibi_sign * evidence_.operands.alibi_slopes[at.h] * static_cast<double>(std::abs(diagonal - j));
    }
    x *= r.score_factor;
  }
  mask(r, keys, row);
  for (std::int64_t j = 0; j < n; ++j) {
    if (row.score[j] == kHidden) continue;
    const double product = 2 * terms * unit * std::abs(scale) * q_norm * keys.k_norm[j];
    error = std::max(error, product + 4 * unit * std::abs(row.score[j]));
  }
  row.score_error = error + evidence_.numerics.exp_error + (cap > 0 ? cap * evidence_.numerics.tanh_error : 0);
}

}  // namespace attest::diagnose

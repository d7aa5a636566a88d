// SPDX-License-Identifier: Apache-2.0
#include "reference/problem/exact_inputs.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace attest {
namespace {

constexpr std::int64_t kStairKeys = 16;  // keys of one step of a staircase: the smallest tile

std::int64_t keys_of(const InputRow& row) { return row.problem.seq_k[static_cast<std::size_t>(row.at.b)]; }
bool is_power_of_two(std::int64_t n) { return n > 0 && std::has_single_bit(static_cast<std::uint64_t>(n)); }

/// The stream that all keys of a head of a sequence share.
RandomStream head_stream(const InputRow& row, std::uint64_t salt) {
  return RandomStream(row.problem.fill.seed, 0xE0 + salt)
      .child(static_cast<std::uint64_t>(row.at.b))
      .child(static_cast<std::uint64_t>(row.at.h));
}

void fill_with(const InputRow& row, double value) { std::fill(row.values.begin(), row.values.end(), value); }

void integers(const InputRow& row, std::int64_t most) {
  for (std::size_t c = 0; c < row.values.size(); ++c)
    row.values[c] = static_cast<double>(row.random.below(c, 2 * most + 1) - most);
}

/// Four entries of +-1: <do, v> and its sums stay small integers.
void sparse_signs(const InputRow& row) {
  fill_with(row, 0);
  for (std::uint64_t n = 0; n < 4; ++n) {
    const auto c = row.random.below(2 * n, static_cast<std::int64_t>(row.values.size()));
    row.values[static_cast<std::size_t>(c)] = row.random.sign(2 * n + 1);
  }
}

/// Column by hash, so that no tile size is a period.
void hashed_one_hot(const InputRow& row) {
  fill_with(row, 0);
  row.values[static_cast<std::size_t>(row.random.below(0, static_cast<std::int64_t>(row.values.size())))] = 1;
}

/// v_j = c + w_j with w_j = -w of its partner Sk - 1 - j: the mean over all keys is the integer c of the column. It is not 0,
/// so that the last rounding absorbs what a split into odd parts may leave in float32.
void balanced(const InputRow& row, std::int64_t j, std::int64_t keys) {
  const RandomStream columns = head_stream(row, 0);
  const std::int64_t partner = keys - 1 - j;
  const RandomStream pair = head_stream(row, 1).child(static_cast<std::uint64_t>(std::min(j, partner)));
  const double sign = j == partner ? 0 : j < partner ? 1 : -1;
  for (std::size_t c = 0; c < row.values.size(); ++c) {
    const double mean = static_cast<double>(columns.below(c, 3) + 1);
    row.values[c] = mean + sign * static_cast<double>(pair.below(c, 5) - 2);
  }
}

void uniform_scores(const InputRow& row, TensorId zero, std::int64_t j, std::int64_t keys) {
  if (row.id == zero) return fill_with(row, 0);
  if (row.id == TensorId::v) return balanced(row, j, keys);
  if (row.id == TensorId::q || row.id == TensorId::k) return integers(row, 2);
  sparse_signs(row);
}

std::int64_t largest_integer(Dtype type) { return std::int64_t{1} << std::min(format_of(type).precision, 30); }

bool plain(const Problem& p) { return p.causal == Causal::none && !p.window; }

bool all_keys(const Problem& p, bool (*holds)(std::int64_t)) {
  return std::all_of(p.seq_k.begin(), p.seq_k.end(), [&](std::int64_t n) { return n == 0 || holds(n); });
}

std::string common_needs(std::string_view name, const Problem& p) {
  const Dtype out = p.output_dtype();
  if (out != Dtype::f16 && out != Dtype::bf16) return "an output type f16 or bf16";
  if (p.softcap > 0 || p.alibi || p.block || p.d_lse || p.d_bias) return "no softcap, alibi, block, dlse or dbias";
  if (name != "exact-census" && (p.mask || p.bias)) return "no mask or bias";
  if (name != "exact-dropout" && p.dropout) return "no dropout";
  for (const TensorId id : {TensorId::q, TensorId::k, TensorId::v, TensorId::d_o}) {
    const auto& strides = p.strides[static_cast<std::size_t>(id)];
    if (strides && (strides->seq == 0 || strides->head == 0 || (strides->batch == 0 && p.layout != Layout::thd)))
      return "no strides of 0";
  }
  return "";
}

std::string ladder_needs(std::string_view name, const Problem& p) {
  if (!plain(p)) return "no causal or window";
  if (p.effective_scale() != kLn2Scale) return "scale=0.69314718";
  if (name == "exact-ladder") {
    return all_keys(p, [](std::int64_t n) { return n == 4 || n == 16 || n == 64 || n == 256; }) ? "" : "k of 4, 16, 64 or 256";
  }
  const bool steps = all_keys(p, [](std::int64_t n) { return n % kStairKeys == 0 && n >= 32 && n <= 256; });
  return steps ? "" : "k a multiple of 16 from 32 to 256";
}

std::string census_needs(const Problem& p) {
  if (!plain(p)) return "no causal or window";
  if (p.mask.has_value() == p.bias.has_value()) return "either a mask or a bias";
  const Broadcast& shape = p.mask ? p.mask->shape : p.bias->shape;
  if (!shape.query || !shape.key) return "a mask or bias of its own for each query and key";
  const bool equal = std::all_of(p.seq_k.begin(), p.seq_k.end(), [&](std::int64_t n) { return n == p.max_k(); });
  return equal && is_power_of_two(p.max_k()) && p.max_k() <= 256 ? "" : "k a power of two up to 256, the same for all sequences";
}

}  // namespace

std::string exact_family_needs(std::string_view name, const Problem& p) {
  if (std::string needs = common_needs(name, p); !needs.empty()) return needs;
  if (name == "exact-ladder" || name == "exact-staircase") return ladder_needs(name, p);
  if (name == "exact-census") return census_needs(p);
  if (name == "exact-constant") return "";
  if (name == "exact-prefix") {
    if (p.window) return "no window";
    const std::int64_t most = std::min(largest_integer(p.dtype), std::int64_t{2048}) - 1;
    return p.max_k() <= most ? "" : "k of at most " + std::to_string(most) + " in this type";
  }
  if (name == "exact-retrieval") {
    if (p.dim < 64 || p.effective_scale() == 0) return "dim of at least 64 and a scale that is not 0";
    return std::abs(p.effective_scale()) >= 1e-3 && std::abs(p.effective_scale()) <= 4 ? "" : "a scale of 0.001 to 4";
  }
  if (name == "exact-window") {
    const bool bounded = p.window && p.window->left >= 0 && (p.window->right >= 0 || p.causal != Causal::none);
    return bounded ? "" : "a window limited on both sides";
  }
  if (name == "exact-diagonal") return p.window && p.window->left == 0 && p.window->right == 0 ? "" : "window=0,0";
  if (!plain(p)) return "no causal or window";
  if (name == "exact-opposite") return "";
  if (!all_keys(p, is_power_of_two)) return "k powers of two";
  if (name != "exact-dropout") return "";
  if (p.max_k() > 256) return "k of at most 256";
  return p.dropout && p.dropout->p == 0.5 ? "" : "dropout=0.5";
}

void exact_uniform(const InputRow& row) { uniform_scores(row, TensorId::q, row.at.i, keys_of(row)); }
void exact_uniform_k(const InputRow& row) { uniform_scores(row, TensorId::k, row.at.i, keys_of(row)); }

void exact_duplicate(const InputRow& row) {
  const std::int64_t half = std::max<std::int64_t>(keys_of(row) / 2, 1);
  uniform_scores(row, TensorId::q, row.at.i % half, half);
}

/// v_j = (j + 1) c_j - j c_(j-1), c 1 or 2 by hash: the mean of the first n values is c_(n-1).
void exact_prefix(const InputRow& row) {
  if (row.id == TensorId::q) return fill_with(row, 0);
  if (row.id != TensorId::v) return row.id == TensorId::k ? integers(row, 2) : sparse_signs(row);
  const RandomStream head = head_stream(row, 0);
  const auto j = static_cast<std::uint64_t>(row.at.i);
  const RandomStream own = head.child(j), before = head.child(j - 1);
  for (std::size_t c = 0; c < row.values.size(); ++c) {
    const double left = j == 0 ? 0 : static_cast<double>(1 + before.below(c, 2));
    row.values[c] = static_cast<double>(j + 1) * static_cast<double>(1 + own.below(c, 2)) - static_cast<double>(j) * left;
  }
}

void exact_window(const InputRow& row) {
  if (row.id == TensorId::q) return fill_with(row, 0);
  if (row.id == TensorId::d_o) return sparse_signs(row);
  integers(row, row.id == TensorId::v ? 3 : 2);
  if (row.id == TensorId::v) {
    for (double& value : row.values) value += 4;
  }
}

/// Codes of +-1; the query of a key scores 288 with it, and less with others by more than float32's exp can show.
void exact_retrieval(const InputRow& row) {
  const std::int64_t sk = keys_of(row);
  if (row.id == TensorId::v && !row.problem.wants_backward()) return row.random.fill_normal(row.values);
  if (row.id == TensorId::v || row.id == TensorId::d_o) return integers(row, 4);
  if (sk == 0) return integers(row, 2);
  const double score = 288 / row.problem.effective_scale() / static_cast<double>(row.problem.dim);
  const double factor = std::ldexp(1.0, std::ilogb(score) / 2);
  RandomStream code = row.random;
  double size = factor;
  if (row.id == TensorId::q) {
    const auto [first, last] = likely_keys(row.problem, row.at);
    const std::int64_t key = first <= last ? first + row.random.below(0, last - first + 1) : 0;
    code = row.keys.stream(row.keys.representative({row.at.b, key, row.at.h / row.problem.group()}));
    size = score / factor;
  }
  for (std::size_t c = 0; c < row.values.size(); ++c) row.values[c] = size * code.sign(c);
}

void census_row(const Problem& problem, const RandomStream& row, std::span<std::uint8_t> shown) {
  const std::uint64_t keys = shown.size();
  const auto bits = static_cast<std::int64_t>(std::bit_width(keys));  // counts 1, 2, ... keys
  const bool empty = problem.bias && row.below(0, 8) == 0;
  const std::uint64_t count = empty ? 0 : std::uint64_t{1} << row.below(1, bits);
  const std::uint64_t odd = row.word(2) | 1, start = row.word(3);
  for (std::uint64_t j = 0; j < keys; ++j) shown[j] = ((j * odd + start) & (keys - 1)) < count;
}

void exact_census(const InputRow& row) {
  if (row.id == TensorId::q) return fill_with(row, 0);
  if (row.id == TensorId::d_o) return sparse_signs(row);
  if (row.id == TensorId::k) return integers(row, 2);
  hashed_one_hot(row);
}

void exact_dropout(const InputRow& row) { exact_census(row); }

/// The digits of a shuffled (or reversed) j to base 4, worth 0, 1, 2, 2: sum 2^-level = 2 for each digit. A staircase has
/// one level for each 16 keys, the highest twice, so that the maximum rises in every tile: sum 2^-level = 32.
std::int64_t ladder_level(const Problem& problem, const RandomStream& head, std::int64_t j, std::int64_t keys) {
  if (problem.fill.family == "exact-staircase") return std::min(keys / kStairKeys - 1 - j / kStairKeys, keys / kStairKeys - 2);
  auto place = static_cast<std::uint64_t>(j);
  const std::uint64_t last = static_cast<std::uint64_t>(keys) - 1;
  switch (head.below(0, 3)) {
    case 0: break;
    case 1: place = last - place; break;
    default: place = (place * (head.word(1) | 1) + head.word(2)) & last;
  }
  std::int64_t level = 0;
  for (std::uint64_t rest = last; rest != 0; rest /= 4, place /= 4) level += std::min<std::int64_t>(static_cast<std::int64_t>(place % 4), 2);
  return level;
}

/// Scores are -level ln 2; v is one of -1, 0, 1 for each level and column, so that o needs few bits.
void exact_ladder(const InputRow& row) {
  if (row.id == TensorId::d_o) return sparse_signs(row);
  fill_with(row, 0);
  if (row.id == TensorId::q) {
    row.values[0] = 1;
    return;
  }
  RandomStream head = head_stream(row, 2);
  const std::int64_t keys = keys_of(row);
  const std::int64_t level = ladder_level(row.problem, head, row.at.i, keys);
  if (row.id == TensorId::k) {
    row.values[0] = static_cast<double>(-level);
    return;
  }
  const RandomStream values = head.child(static_cast<std::uint64_t>(level));
  const bool stair = row.problem.fill.family == "exact-staircase";
  for (std::size_t c = 0; c < row.values.size(); ++c) {
    const std::int64_t first = static_cast<std::int64_t>(c % 10);
    const bool kept = !stair || (level >= first && level < first + 5);
    const double mean = kept ? static_cast<double>(values.below(c, 3) - 1) : 0;
    // Neighbours of one step of a staircase differ by +-1 around its mean.
    const double sway = stair ? head.child(1000).child(static_cast<std::uint64_t>(row.at.i / 2)).sign(c) *
                                    (row.at.i % 2 == 0 ? 1 : -1)
                              : 0;
    row.values[c] = mean + sway;
  }
}

void exact_constant(const InputRow& row) {
  if (row.id == TensorId::k) return fill_with(row, 0);
  if (row.id == TensorId::q) return row.random.fill_normal(row.values);
  if (row.id == TensorId::d_o) return integers(row, 2);
  fill_with(row, static_cast<double>(1 + (row.at.b * row.problem.heads_kv + row.at.h) % 7));
}

void exact_diagonal(const InputRow& row) {
  if (row.id == TensorId::v || row.id == TensorId::d_o) return integers(row, 4);
  row.random.fill_normal(row.values);
}

void exact_opposite(const InputRow& row) {
  if (row.id == TensorId::q) return fill_with(row, 0);
  if (row.id == TensorId::d_o) return sparse_signs(row);
  if (row.id == TensorId::k) return integers(row, 2);
  // Pairs lie in one group of 16 keys, or are neighbours in the last one: each tile sums to 0 by itself.
  const std::int64_t keys = keys_of(row);
  const std::int64_t partner = (row.at.i | 15) < keys ? row.at.i ^ 8 : row.at.i ^ 1;
  const RandomStream pair = head_stream(row, 1).child(static_cast<std::uint64_t>(std::min(row.at.i, partner)));
  const double sign = partner >= keys ? 0 : row.at.i < partner ? 1 : -1;
  for (std::size_t c = 0; c < row.values.size(); ++c) row.values[c] = sign * static_cast<double>(pair.below(c, 15) - 7);
}

}  // namespace attest

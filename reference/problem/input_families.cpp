// SPDX-License-Identifier: Apache-2.0
// The input families. A constant that depends on the problem (for example the size of q that puts all scores at a
// level) is a power of two or is rounded with everything else, so the oracle sees what the kernel sees.
#include "reference/problem/input_families.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "reference/problem/exact_inputs.h"
#include "reference/problem/invalid_request.h"
#include "reference/problem/layout.h"

namespace attest {
namespace {

/// Where "as large as possible" ends for f64, whose squares and sums must stay finite in the judge's doubles.
constexpr double kLargestF64 = 0x1p400;

bool is_qk(const InputRow& row) { return row.id == TensorId::q || row.id == TensorId::k; }

void scale_row(const InputRow& row, double factor) {
  for (double& value : row.values) value *= factor;
}

/// Power of two at most |value|; 1 for zero.
double power_of_two_below(double value) {
  if (value == 0 || !std::isfinite(value)) return 1;
  int exponent = 0;
  std::frexp(value, &exponent);
  return std::ldexp(1.0, exponent - 1);
}

/// x with scale * x = score; where the scale is 0 no x does, and any will do.
double product_for_score(const Problem& problem, double score) {
  const double scale = problem.effective_scale();
  const double product = scale == 0 ? score : score / scale;
  return std::clamp(product, -kLargestF64, kLargestF64);
}

/// Factor of k that keeps <q, k> of normal rows within about 1/4 of a score.
double quiet_factor(const Problem& problem) {
  const double spread = std::sqrt(static_cast<double>(problem.dim)) * std::abs(problem.effective_scale());
  return spread > 0.25 ? 0.25 / spread : 1;
}

void normal(const InputRow& row) { row.random.fill_normal(row.values); }

void uniform(const InputRow& row) {
  for (std::size_t c = 0; c < row.values.size(); ++c) row.values[c] = row.random.symmetric(c);
}

void positive(const InputRow& row) {
  for (std::size_t c = 0; c < row.values.size(); ++c) row.values[c] = row.random.unit(c);
}

/// -3 ... 3: representable in every type, and products and sums of up to 2^20 of them are exact in f32.
void integers(const InputRow& row) {
  for (std::size_t c = 0; c < row.values.size(); ++c) row.values[c] = static_cast<double>(row.random.below(c, 7) - 3);
}

/// One column by hash, so that no tile size is a period of the columns: 4 in q and k, 1 in v and d_o.
void onehot(const InputRow& row) {
  std::fill(row.values.begin(), row.values.end(), 0.0);
  const auto column = row.random.below(0, static_cast<std::int64_t>(row.values.size()));
  row.values[static_cast<std::size_t>(column)] = is_qk(row) ? 4 : 1;
}

/// The key of a query row's needle: half of them anywhere it is likely to see, a quarter next to a multiple of 16
/// (every tile edge is one), a quarter on the first and last visible keys and the hidden ones next to them.
std::int64_t needle_key(const InputRow& row) {
  const auto [first, last] = likely_keys(row.problem, row.at);
  const std::int64_t sk = row.problem.seq_k[static_cast<std::size_t>(row.at.b)];
  const std::int64_t inside = first + row.random.below(0, std::max(last - first + 1, std::int64_t{1}));
  std::int64_t key = inside;
  switch (row.random.below(1, 4)) {
    case 0:
      key = (inside + 8) / 16 * 16 + row.random.below(2, 3) - 1;
      break;
    case 1:
      key = std::array{first - 1, first, last, last + 1}[static_cast<std::size_t>(row.random.below(2, 4))];
      break;
    default:
      break;
  }
  return std::clamp(key, std::int64_t{0}, sk - 1);
}

void sign_code(const RandomStream& random, double factor, std::span<double> values) {
  for (std::size_t c = 0; c < values.size(); ++c) values[c] = factor * random.sign(c);
}

/// Keys are random codes of +-1 and a query is its needle's code, so large that the needle's score is 48 where other
/// scores are about 48 N(0, 1) / sqrt(D): from D = 32 on one key dominates.
void needle(const InputRow& row) {
  if (row.id == TensorId::k) return sign_code(row.random, 1, row.values);
  if (row.id != TensorId::q) return normal(row);
  const std::int64_t sk = row.problem.seq_k[static_cast<std::size_t>(row.at.b)];
  if (sk == 0) return normal(row);
  const RowPosition key = {row.at.b, needle_key(row), row.at.h / row.problem.group()};
  const double factor = product_for_score(row.problem, 48) / static_cast<double>(row.problem.dim);
  sign_code(row.keys.stream(row.keys.representative(key)), factor, row.values);
}

void peaked(const InputRow& row) {
  normal(row);
  if (row.id == TensorId::q) scale_row(row, row.parameter);
}

/// Every key of a head is the same, so all scores of a row are equal to the last bit.
void constant(const InputRow& row) {
  if (row.id != TensorId::k) return normal(row);
  row.keys.stream({0, 0, row.at.h}).fill_normal(row.values);
}

/// Columns 0 and 1 of every k are the power of two a; those of q are X / (scale a) rounded, and what the rounding lost.
void level(const InputRow& row) {
  normal(row);
  if (!is_qk(row)) return;
  const double product = product_for_score(row.problem, row.parameter);
  const double largest = power_of_two_below(format_of(row.problem.dtype).max);
  const double a = std::clamp(power_of_two_below(std::sqrt(std::abs(product))), 1.0, largest);
  if (row.id == TensorId::k) scale_row(row, quiet_factor(row.problem));
  const double first = round_to(row.problem.dtype, product / a, Overflow::saturate);
  row.values[0] = row.id == TensorId::k ? a : first;
  if (row.values.size() > 1) row.values[1] = row.id == TensorId::k ? a : product / a - first;
}

/// The step of key j is t = j / 16. Its digits to base 8, which every type holds exactly, go to columns 0 and 1 of k;
/// q has the score of one step and of eight there. (With D = 1: t itself.) Key columns are scaled up by a power of two
/// so that the two of q stay small.
void staircase(const InputRow& row, double score_of_step) {
  normal(row);
  if (!is_qk(row)) return;
  const double product = product_for_score(row.problem, score_of_step);
  const double a = std::clamp(power_of_two_below(product / 4), 1.0, 16.0);
  const bool two_digits = row.values.size() > 1;
  if (row.id == TensorId::k) {
    const std::int64_t step = row.at.i / 16;
    scale_row(row, quiet_factor(row.problem));
    row.values[0] = a * static_cast<double>(two_digits ? step % 8 : step);
    if (two_digits) row.values[1] = a * static_cast<double>(step / 8);
  } else {
    row.values[0] = product / a;
    if (two_digits) row.values[1] = 8 * product / a;
  }
}

void rising(const InputRow& row) { staircase(row, row.parameter); }
void falling(const InputRow& row) { staircase(row, -row.parameter); }

/// As large as v may be so that O is finite in the output type, with dropout, and so that sums of P v over all keys
/// stay finite where a kernel accumulates in f32, P up to 2^8 (an offset as for e4m3, or a maximum followed late).
double largest_v(const Problem& problem) {
  const double keys = static_cast<double>(std::max(problem.max_k(), std::int64_t{1}));
  const double accumulator = problem.dtype == Dtype::f64 ? kLargestF64 : format_of(Dtype::f32).max / (1024 * keys);
  const double limit = std::min({format_of(problem.dtype).max, format_of(problem.output_dtype()).max, accumulator});
  return limit * (1 - problem.effective_dropout());
}

/// Power of two that moves q up and k down: dK, which has the size of q, must stay finite.
double edge_tilt(const Problem& problem) {
  const double terms = static_cast<double>(std::max(problem.max_q(), std::int64_t{1}) * problem.group());
  const double headroom = format_of(problem.output_dtype()).max / (1024 * terms);
  const double above_subnormal = std::ldexp(1.0, -format_of(problem.dtype).min_exponent - 5);
  return std::max(1.0, power_of_two_below(std::min({headroom, above_subnormal, kLargestF64})));
}

/// v at the top of the range and d_o so small that <d_o, v> is of size 4; q up and k down by the same power of two.
void edge(const InputRow& row) {
  const Problem& problem = row.problem;
  const double top = largest_v(problem);
  switch (row.id) {
    case TensorId::q:
      normal(row);
      return scale_row(row, edge_tilt(problem));
    case TensorId::k:
      normal(row);
      return scale_row(row, 1 / edge_tilt(problem));
    case TensorId::v:
      for (std::size_t c = 0; c < row.values.size(); ++c) {
        row.values[c] = top * (1 - row.random.unit(2 * c) / 2) * row.random.sign(2 * c + 1);
      }
      return;
    default: {
      normal(row);
      const double small = 4 / (top * std::sqrt(static_cast<double>(problem.width_v())));
      return scale_row(row, std::max(small, 4 * format_of(problem.dtype).min_subnormal()));
    }
  }
}

/// v is wholly subnormal; of q, k and d_o every fourth element by hash.
void subnormal(const InputRow& row) {
  const DtypeFormat& format = format_of(row.problem.dtype);
  const double below = format.min_normal() - format.min_subnormal();
  normal(row);
  for (std::size_t c = 0; c < row.values.size(); ++c) {
    const std::uint64_t word = row.random.word(row.values.size() + c);
    if (row.id == TensorId::v || word % 4 == 0) row.values[c] = below * (static_cast<double>(word >> 11) * 0x1p-52 - 1);
  }
}

/// N(0, 1) + N(0, 100) Bernoulli(0.001), the distribution of FlashAttention-3's accuracy study.
void outliers(const InputRow& row) {
  normal(row);
  const std::size_t width = row.values.size();
  for (std::size_t c = 0; c < width; ++c) {
    if (row.random.unit(width + 2 * c) < 0.001) row.values[c] += 10 * row.random.normal(width + 2 * c + 1);
  }
}

/// Rows of v and d_o are a common offset of 16 with the sign of their token's parity, and N(0, 1): O is a small
/// difference of large sums, and so are dP - delta and its products.
void cancel(const InputRow& row) {
  normal(row);
  if (is_qk(row)) return;
  for (double& value : row.values) value += row.at.i % 2 == 0 ? 16 : -16;
}

struct GeneratedFamily {
  Family family;
  FillRow fill;
};

using enum FamilyKind;
constexpr GeneratedFamily kGenerated[] = {
    {{"normal", random, "N(0, 1)", "", 0}, normal},
    {{"uniform", random, "uniform in [-1, 1]", "", 0}, uniform},
    {{"positive", random, "uniform in [0, 1]: one sign, no cancellation", "", 0}, positive},
    {{"integers", structured, "-3 to 3: sums exact in f32", "", 0}, integers},
    {{"onehot", structured, "one non-zero per row: 4 in q and k, 1 in v and do", "", 0}, onehot},
    {{"needle", structured, "one key dominates each row, often at a tile or mask edge", "", 0}, needle},
    {{"peaked", random, "N(0, 1), q times X", "factor of q", 8}, peaked},
    {{"constant", structured, "all scores of a row equal", "", 0}, constant},
    {{"rising", structured, "row maxima rise with the keys", "rise of the scores in 16 keys", 20}, rising},
    {{"falling", structured, "scores fall with the keys", "fall of the scores in 16 keys", 20}, falling},
    {{"level", random, "all scores near one level", "the level", -120}, level},
    {{"edge", random, "v at the top of the type's range, q up, k and do down; exact result finite", "", 0}, edge},
    {{"subnormal", structured, "v subnormal, and a quarter of q, k and do", "", 0}, subnormal},
    {{"outliers", random, "N(0, 1) + N(0, 100) Bernoulli(0.001)", "", 0}, outliers},
    {{"cancel", random, "v and do alternate in sign with a large common offset", "", 0}, cancel},
    {{"exact-uniform", exact, "q = 0: O is the mean of v, dk = 0; bit for bit", "", 0}, exact_uniform},
    {{"exact-uniform-k", exact, "k = 0: O is the mean of v, dq = 0; bit for bit", "", 0}, exact_uniform_k},
    {{"exact-duplicate", exact, "exact-uniform with every key and value twice", "", 0}, exact_duplicate},
    {{"exact-prefix", exact, "q = 0: O is a code of the number of visible keys", "", 0}, exact_prefix},
    {{"exact-window", exact, "q = 0: O is the mean over the window", "", 0}, exact_window},
    {{"exact-retrieval", exact, "each query's score hides all keys but one: O copies its v", "", 0}, exact_retrieval},
    {{"exact-census", exact, "q = 0, v one-hot: O counts the keys that a mask or -inf bias shows", "", 0}, exact_census},
    {{"exact-ladder", exact, "P are powers of two, in rising, falling or mixed order", "", 0}, exact_ladder},
    {{"exact-staircase", exact, "P are powers of two, the maximum doubles every 16 keys", "", 0}, exact_ladder},
    {{"exact-dropout", exact, "q = 0, v one-hot: O counts the keys that dropout keeps", "", 0}, exact_dropout},
    {{"exact-constant", exact, "k = 0, v a number of its head: O is that number, dq = dk = 0", "", 0}, exact_constant},
    {{"exact-diagonal", exact, "window=0,0: O copies the one visible v, dv copies do", "", 0}, exact_diagonal},
    {{"exact-opposite", exact, "q = 0, v in opposite pairs: O is exactly 0", "", 0}, exact_opposite},
};

constexpr Family kCaptured = {"file", captured, "tensors from a safetensors file: file:PATH", "", 0};

constexpr auto kFamilies = [] {
  std::array<Family, std::size(kGenerated) + 1> all{};
  for (std::size_t n = 0; n < std::size(kGenerated); ++n) all[n] = kGenerated[n].family;
  all.back() = kCaptured;
  return all;
}();

}  // namespace

std::pair<std::int64_t, std::int64_t> likely_keys(const Problem& problem, RowPosition at) {
  const std::int64_t sq = problem.seq_q[static_cast<std::size_t>(at.b)];
  const std::int64_t sk = problem.seq_k[static_cast<std::size_t>(at.b)];
  std::int64_t first = 0;
  std::int64_t last = sk - 1;
  if (problem.causal != Causal::none) {
    last = std::min(last, at.i + (problem.causal == Causal::bottom_right ? sk - sq : 0));
  }
  if (problem.window) {
    const bool bottom_right = problem.causal == Causal::bottom_right ||
                              (problem.causal == Causal::none && problem.window->alignment != Causal::top_left);
    const std::int64_t centre = at.i + (bottom_right ? sk - sq : 0);
    if (problem.window->left >= 0) first = std::max(first, centre - problem.window->left);
    if (problem.window->right >= 0) last = std::min(last, centre + problem.window->right);
  }
  return {first, last};
}

std::span<const Family> families() { return kFamilies; }

const Family& family(std::string_view name) {
  std::string names;
  for (const Family& known : kFamilies) {
    if (known.name == name) return known;
    names += names.empty() ? "" : ", ";
    names += known.name;
  }
  throw InvalidRequest("fill", name.empty() ? "nothing" : std::string(name), "one of " + names);
}

FillRow fill_row_of(const Family& family) {
  for (const GeneratedFamily& known : kGenerated) {
    if (known.family.name == family.name) return known.fill;
  }
  throw InvalidRequest("fill", std::string(family.name), "a family that is generated");
}

}  // namespace attest

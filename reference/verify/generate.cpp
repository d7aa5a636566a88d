// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/generate.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "reference/problem/inputs.h"
#include "reference/problem/layout.h"
#include "reference/verify/exact_cases.h"

namespace attest {
namespace {

constexpr int kPercent = 100;
constexpr std::int64_t kLongRow = 256;  // keys
constexpr std::int64_t kFewRows = 128;  // 0.9^128 is 1e-6

/// True in `percent` of the draws.
bool chance(int percent) { return *rc::gen::inRange(0, kPercent) < percent; }

std::int64_t between(std::int64_t least, std::int64_t most) { return *rc::gen::inRange<std::int64_t>(least, most + 1); }

template <typename T>
T one_of(std::vector<T> values) {
  return *rc::gen::elementOf(std::move(values));
}

std::int64_t draw_length(const CaseSpace& space) {
  const std::int64_t tile = one_of(space.tiles);
  const int kind = *rc::gen::inRange(0, 12);
  std::int64_t length = 0;
  switch (kind) {
    case 0: length = 0; break;
    case 1: length = between(1, 9); break;
    case 2: length = tile - 1; break;
    case 3: length = tile; break;
    case 4: length = tile + 1; break;
    case 5: length = tile + tile / 2; break;
    case 6: length = 2 * tile + between(-1, 1); break;
    case 7: length = between(1, space.longest); break;
    default: length = between(1, 2 * tile); break;
  }
  return std::min(length, space.longest);
}

void draw_types(Problem& p) {
  p.dtype = *rc::gen::weightedElement<Dtype>({{30, Dtype::f32}, {30, Dtype::f16}, {30, Dtype::bf16}, {6, Dtype::f64},
                                              {5, Dtype::f8e4m3}, {4, Dtype::f8e5m2}});
  if (p.dtype != Dtype::f64 && chance(10)) p.out_dtype = one_of<Dtype>({Dtype::f32, Dtype::f16, Dtype::bf16});
}

void draw_heads(Problem& p) {
  const std::int64_t ratio = *rc::gen::weightedElement<std::int64_t>({{5, 1}, {3, 2}, {2, 3}, {2, 4}, {1, 8}});
  p.heads_kv = *rc::gen::weightedElement<std::int64_t>({{4, 1}, {4, 2}, {2, 3}});
  p.heads_q = p.heads_kv * ratio;
  p.dim = *rc::gen::weightedElement<std::int64_t>(
      {{6, 64}, {3, 32}, {2, 16}, {2, 128}, {1, 96}, {1, 72}, {1, 40}, {1, 80}, {1, 8}, {1, 1}, {1, 3}, {1, 104}, {1, 192}});
  if (chance(20)) {
    const std::int64_t width = one_of<std::int64_t>({8, 16, 32, 64, 128, 5});
    if (width != p.dim) p.dim_v = width;
  }
}

void draw_lengths(Problem& p, const CaseSpace& space) {
  const std::int64_t batch = *rc::gen::weightedElement<std::int64_t>({{5, 1}, {3, 2}, {2, 3}, {1, 5}});
  p.layout = one_of<Layout>({Layout::bshd, Layout::bhsd, Layout::thd});
  p.pad = p.layout != Layout::thd && chance(30) ? PadSide::left : PadSide::right;
  p.seq_q.clear();
  p.seq_k.clear();
  const bool ragged = p.layout == Layout::thd || chance(40);
  const int relation = *rc::gen::inRange(0, 4);  // 0: Sq = Sk, 1: few queries, else independent
  for (std::int64_t b = 0; b < batch; ++b) {
    if (b > 0 && !ragged) {
      p.seq_q.push_back(p.seq_q.front());
      p.seq_k.push_back(p.seq_k.front());
      continue;
    }
    p.seq_k.push_back(draw_length(space));
    p.seq_q.push_back(relation == 0 ? p.seq_k.back() : relation == 1 ? between(0, 4) : draw_length(space));
  }
  const auto more_rows = [&space] { return chance(50) ? between(1, 3) : space.key_tile + between(0, 2); };
  if (chance(20)) p.extent_q = p.rows_q() + more_rows();
  if (chance(20)) p.extent_k = p.rows_k() + more_rows();
}

void draw_scores(Problem& p) {
  if (chance(20)) p.scale = one_of<double>({1.0, 0.0, -0.25, 1e-4, 0.5, 0.0883883461356163, 4.0, 30.0});
  if (chance(15)) p.softcap = one_of<double>({15.0, 1.0, 50.0});
  if (chance(15)) p.alibi = true;
  if (chance(20)) {
    Bias bias;
    bias.shape = {chance(40), chance(40), chance(80), chance(90)};
    if (p.dtype != Dtype::f64 && chance(30)) bias.dtype = Dtype::f32;
    if (chance(25)) bias.hide = one_of<double>({0.1, 0.5, 0.9});
    p.bias = bias;
  }
}

void draw_masks(Problem& p, const CaseSpace& space) {
  if (chance(45)) p.causal = one_of<Causal>({Causal::top_left, Causal::bottom_right, Causal::bottom_right});
  if (chance(25)) {
    const auto side = [&space] {
      const std::int64_t tile = one_of(space.tiles);
      return one_of<std::int64_t>({-1, 0, 1, 2, 7, tile - 1, tile, tile + 1});
    };
    Window window{side(), side(), Causal::none};
    if (p.causal == Causal::none && chance(30)) window.alignment = Causal::top_left;
    p.window = window;
  }
  if (chance(12)) p.mask = ExplicitMask{{chance(40), chance(40), chance(80), chance(90)}, one_of<double>({0.5, 0.1, 0.9, 1.0})};
  if (chance(12)) {
    BlockMask block;
    block.rows = one_of<std::int64_t>({16, 64, 1, 24});
    block.cols = one_of<std::int64_t>({16, 64, 8, 128});
    if (chance(50)) block.local = between(0, 1);
    if (chance(40)) block.global = 1;
    if (chance(70)) block.random = one_of<double>({0.3, 0.6});
    p.block = block;
  }
  if (chance(15)) {
    const std::uint64_t high = chance(50) ? 0 : static_cast<std::uint64_t>(between(1, 1 << 20));
    p.dropout = Dropout{one_of<double>({0.1, 0.5, 0.0, 0.9}), high << 32 | static_cast<std::uint64_t>(between(0, 1 << 20)),
                        static_cast<std::uint64_t>(chance(50) ? 0 : between(1, 1000))};
  }
}

void draw_direction(Problem& p, const CaseSpace& space) {
  p.direction = space.direction;
  if (p.direction == Direction::both && chance(25)) p.direction = one_of<Direction>({Direction::forward, Direction::backward});
  if (!p.wants_backward()) return;
  p.d_lse = chance(15);
  p.d_bias = p.bias.has_value() && chance(60);
}

void draw_fill(Problem& p) {
  std::vector<std::string> extreme;
  for (const Family& f : families()) {
    if (can_be_judged(f, p)) extreme.emplace_back(f.name);
  }
  p.fill.family = chance(40) ? "normal" : one_of(extreme);
  // In long rows an average key may be lost within the bounds: there needles are aimed at keys, tile and mask edges.
  if (p.max_k() > kLongRow && can_be_judged(family("needle"), p) && chance(25)) p.fill.family = "needle";
  p.fill.seed = static_cast<std::uint64_t>(between(0, 1 << 30));
}

std::vector<std::string> exact_families() {
  std::vector<std::string> names;
  for (const Family& f : families()) {
    if (f.kind == FamilyKind::exact) names.emplace_back(f.name);
  }
  return names;
}

/// Another order of dimensions, gaps between heads and rows, or an expanded head dimension.
void draw_strides(Problem& p) {
  if (!chance(20)) return;
  const TensorId id = one_of<TensorId>({kTensorIds.begin(), kTensorIds.end()});
  const Extents e = extents_of(p, id);
  const std::int64_t gap = one_of<std::int64_t>({0, 8, 3});
  Strides strides;
  if (!is_output(id) && family(p.fill.family).kind != FamilyKind::exact && chance(25)) {
    strides = {e.rows * e.width, e.width, 0};
  } else {
    strides = spaced_strides(e, gap, chance(50));
  }
  if (p.layout == Layout::thd) strides.batch = 0;
  p.strides[static_cast<std::size_t>(id)] = strides;
}

/// Last, and only where there is no backward, so that cases without pages stay what they were.
void draw_pages(Problem& p) {
  if (p.wants_backward() || !chance(20)) return;
  p.page_size = one_of<std::int64_t>({16, 32, 64, 128, 256, 1, 48});
  p.extent_k.reset();
  for (const TensorId id : {TensorId::k, TensorId::v}) p.strides[static_cast<std::size_t>(id)].reset();
}

void shorten_to(Problem& p, double most_work) {
  while (forward_work(p) > most_work) {
    for (std::int64_t& length : p.seq_q) length = (length + 1) / 2;
    for (std::int64_t& length : p.seq_k) length = (length + 1) / 2;
    if (p.heads_kv > 1) {
      p.heads_q = p.group();
      p.heads_kv = 1;
    }
  }
}

}  // namespace

// Families on which the values of a type cannot be judged are no use: float32 arithmetic may flush the subnormals
// of f32 and bf16, and 3-bit and 2-bit fractions cannot hold scores of a hundred.
bool can_be_judged(const Family& f, const Problem& p) {
  const Dtype dtype = p.dtype;
  if (f.kind == FamilyKind::captured || f.kind == FamilyKind::exact) return false;
  const bool narrow = dtype == Dtype::f8e4m3 || dtype == Dtype::f8e5m2;
  // Values at the edge of the inputs' range overflow outputs of a narrower one, and times 1 / (1 - p) any: then delta
  // is infinite.
  const bool larger_outputs = p.dropout && p.dropout->p > 0;
  if (f.name == "edge" && (larger_outputs || format_of(p.output_dtype()).max < format_of(dtype).max)) return false;
  // Scores near 2^1000 leave float64 nothing to be judged by.
  if (f.name == "edge" && dtype == Dtype::f64) return false;
  if (f.name == "subnormal") return dtype == Dtype::f16 || dtype == Dtype::f64;
  const bool large_scores = f.name == "rising" || f.name == "falling" || f.name == "level" || f.name == "edge" ||
                            f.name == "cancel" || f.name == "needle" || f.name == "peaked";
  // The products of v and do are about 256 Dv there: times 1 / (1 - p) dS leaves the range of f16.
  if (f.name == "cancel" && larger_outputs && dtype == Dtype::f16) return false;
  // Where one key holds a row and dropout takes it, what is left of o lies below every bound: a few rows may be
  // all like that.
  const bool drops = p.dropout && p.dropout->p > 0;
  if (drops && large_scores && p.total_q() * p.heads_q < kFewRows) return false;
  return !(narrow && large_scores);
}

Strides spaced_strides(const Extents& e, std::int64_t gap, bool heads_outside) {
  Strides strides;
  std::int64_t& inner = heads_outside ? strides.seq : strides.head;
  std::int64_t& outer = heads_outside ? strides.head : strides.seq;
  const std::int64_t rows = std::max<std::int64_t>(e.rows, 1);
  inner = e.width + gap;
  outer = inner * (heads_outside ? rows : e.heads) + gap;
  strides.batch = outer * (heads_outside ? e.heads : rows) + gap;
  return strides;
}

double forward_work(const Problem& problem) {
  double pairs = 0;
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    pairs += static_cast<double>(problem.seq_q[b]) * static_cast<double>(problem.seq_k[b]);
  }
  return pairs * static_cast<double>(problem.heads_q) * static_cast<double>(problem.dim + problem.width_v());
}

rc::Gen<Problem> cases(const CaseSpace& space) {
  return rc::gen::exec([space] {
    Problem p;
    draw_types(p);
    draw_heads(p);
    draw_lengths(p, space);
    draw_scores(p);
    draw_masks(p, space);
    draw_direction(p, space);
    draw_fill(p);
    shorten_to(p, space.most_work);
    if (chance(12)) {
      const Problem exact = with_exact_family(p, one_of(exact_families()));
      if (forward_work(exact) <= space.most_work) p = exact;
    }
    draw_strides(p);
    draw_pages(p);
    validate(p);
    return p;
  });
}

Problem random_case(const CaseSpace& space, std::uint64_t seed, std::uint64_t index) {
  const std::uint64_t key = random_word(seed, 0, index);
  // RapidCheck keeps a stack of its own between generators, one for the process.
  static std::mutex rapidcheck_mutex;
  const std::lock_guard lock(rapidcheck_mutex);
  return cases(space)(rc::Random(key), rc::kNominalSize).value();
}

}  // namespace attest

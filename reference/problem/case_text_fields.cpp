// SPDX-License-Identifier: Apache-2.0
#include "reference/problem/case_text_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "reference/problem/case_text_values.h"

namespace attest {
namespace {

using namespace case_text;

constexpr Words<Layout, 3> kLayouts = {"layout", {{{"bshd", Layout::bshd}, {"bhsd", Layout::bhsd}, {"thd", Layout::thd}}}};
constexpr Words<PadSide, 2> kPads = {"pad", {{{"right", PadSide::right}, {"left", PadSide::left}}}};
constexpr Words<Causal, 3> kCausals = {
    "causal", {{{"none", Causal::none}, {"top-left", Causal::top_left}, {"bottom-right", Causal::bottom_right}}}};
constexpr Words<Causal, 2> kAlignments = {
    "window", {{{"top-left", Causal::top_left}, {"bottom-right", Causal::bottom_right}}}};
constexpr Words<Direction, 3> kDirections = {
    "direction", {{{"forward", Direction::forward}, {"backward", Direction::backward}, {"both", Direction::both}}}};

bool equal_lengths(const std::vector<std::int64_t>& lengths) {
  for (const std::int64_t length : lengths) {
    if (length != lengths.front()) return false;
  }
  return true;
}

/// Lengths are printed once, beside batch=, only where all are equal on both sides.
bool prints_batch(const Problem& p) { return p.batch() > 1 && equal_lengths(p.seq_q) && equal_lengths(p.seq_k); }

std::string print_lengths(const Problem& p, const std::vector<std::int64_t>& lengths) {
  return prints_batch(p) ? fmt::format("{}", lengths.front()) : fmt::format("{}", fmt::join(lengths, ","));
}

void parse_heads(CaseDraft& d, std::string_view text) {
  std::optional<std::int64_t> kv;
  parse_pair("heads", text, d.problem.heads_q, kv);
  d.problem.heads_kv = kv.value_or(d.problem.heads_q);
}

std::string print_heads(const Problem& p) {
  return p.heads_q == p.heads_kv ? fmt::format("{}", p.heads_q) : fmt::format("{}/{}", p.heads_q, p.heads_kv);
}

void parse_dim(CaseDraft& d, std::string_view text) {
  parse_pair("dim", text, d.problem.dim, d.problem.dim_v);
  if (d.problem.dim_v == d.problem.dim) d.problem.dim_v.reset();
}

std::string print_dim(const Problem& p) {
  return p.width_v() == p.dim ? fmt::format("{}", p.dim) : fmt::format("{}/{}", p.dim, p.width_v());
}

void parse_bias(CaseDraft& d, std::string_view text) {
  const auto parts = split(text, ':');
  Bias bias{broadcast("bias", parts[0]), std::nullopt, 0};
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].starts_with("hide=")) {
      bias.hide = real("bias", parts[i].substr(5));
    } else {
      bias.dtype = dtype("bias", parts[i]);
    }
  }
  d.problem.bias = bias;
}

std::string print_bias(const Problem& p) {
  if (!p.bias) return "";
  std::string text = print_broadcast(p.bias->shape);
  if (p.bias->dtype) text += fmt::format(":{}", name_of(*p.bias->dtype));
  if (p.bias->hide != 0) text += fmt::format(":hide={}", p.bias->hide);
  return text;
}

void parse_window(CaseDraft& d, std::string_view text) {
  const auto parts = split(text, ',');
  if (parts.size() < 2 || parts.size() > 3) refuse("window", text, "LEFT,RIGHT or LEFT,RIGHT,top-left|bottom-right");
  Window window{integer("window", parts[0]), integer("window", parts[1]), Causal::none};
  if (parts.size() == 3) window.alignment = kAlignments.parse(parts[2]);
  d.problem.window = window;
}

std::string print_window(const Problem& p) {
  if (!p.window) return "";
  const std::string sides = fmt::format("{},{}", p.window->left, p.window->right);
  return p.window->alignment == Causal::none ? sides : sides + "," + kAlignments.print(p.window->alignment);
}

void parse_mask(CaseDraft& d, std::string_view text) {
  const auto parts = split(text, ':');
  if (parts.size() > 2) refuse("mask", text, "SHAPE or SHAPE:DENSITY");
  ExplicitMask mask{broadcast("mask", parts[0]), 0.5};
  if (parts.size() == 2) mask.density = real("mask", parts[1]);
  d.problem.mask = mask;
}

std::string print_mask(const Problem& p) {
  return p.mask ? fmt::format("{}:{}", print_broadcast(p.mask->shape), p.mask->density) : "";
}

void parse_block(CaseDraft& d, std::string_view text) {
  constexpr const char* form = "ROWSxCOLS:PATTERN with patterns local=W global=G random=SHARE joined by +";
  const auto parts = split(text, ':');
  const auto sizes = split(parts[0], 'x');
  if (parts.size() != 2 || sizes.size() != 2) refuse("block", text, form);
  BlockMask block;
  block.rows = integer("block", sizes[0]);
  block.cols = integer("block", sizes[1]);
  for (const std::string_view pattern : split(parts[1], '+')) {
    if (pattern.starts_with("local=")) {
      block.local = integer("block", pattern.substr(6));
    } else if (pattern.starts_with("global=")) {
      block.global = integer("block", pattern.substr(7));
    } else if (pattern.starts_with("random=")) {
      block.random = real("block", pattern.substr(7));
    } else {
      refuse("block", pattern, form);
    }
  }
  d.problem.block = block;
}

std::string print_block(const Problem& p) {
  if (!p.block) return "";
  std::vector<std::string> patterns;
  if (p.block->local >= 0) patterns.push_back(fmt::format("local={}", p.block->local));
  if (p.block->global > 0) patterns.push_back(fmt::format("global={}", p.block->global));
  // A mask that shows nothing still needs a pattern to be written.
  if (p.block->random > 0 || patterns.empty()) patterns.push_back(fmt::format("random={}", p.block->random));
  return fmt::format("{}x{}:{}", p.block->rows, p.block->cols, fmt::join(patterns, "+"));
}

void parse_dropout(CaseDraft& d, std::string_view text) {
  const std::size_t at = text.find('@');
  Dropout dropout;
  dropout.p = real("dropout", text.substr(0, at));
  if (at != std::string_view::npos) {
    // SEED+OFFSET; a + cannot occur inside either number.
    const std::string_view counters = text.substr(at + 1);
    const std::size_t plus = counters.find('+');
    constexpr const char* form = "P, P@SEED or P@SEED+OFFSET with whole numbers";
    dropout.seed = number<std::uint64_t>("dropout", counters.substr(0, plus), form);
    if (plus != std::string_view::npos) dropout.offset = number<std::uint64_t>("dropout", counters.substr(plus + 1), form);
  }
  d.problem.dropout = dropout;
}

std::string print_dropout(const Problem& p) {
  if (!p.dropout) return "";
  std::string text = fmt::format("{}", p.dropout->p);
  if (p.dropout->seed != 0 || p.dropout->offset != 0) text += fmt::format("@{}", p.dropout->seed);
  if (p.dropout->offset != 0) text += fmt::format("+{}", p.dropout->offset);
  return text;
}

void parse_fill(CaseDraft& d, std::string_view text) {
  Fill fill;
  if (text.starts_with("file:")) {
    fill.family = "file";
    fill.path = percent_decode(text.substr(5));
    d.problem.fill = fill;
    return;
  }
  const std::size_t at = text.find('@');
  const std::string_view head = text.substr(0, at);
  if (at != std::string_view::npos) fill.seed = number<std::uint64_t>("fill", text.substr(at + 1), "a seed: FAMILY@SEED");
  const std::size_t colon = head.find(':');
  fill.family = std::string(head.substr(0, colon));
  if (colon != std::string_view::npos) fill.parameter = real("fill", head.substr(colon + 1));
  d.problem.fill = fill;
}

std::string print_fill(const Problem& p) {
  if (p.fill.family == "file") return "file:" + percent_encode(p.fill.path);
  std::string text = p.fill.family;
  if (p.fill.parameter) text += fmt::format(":{}", *p.fill.parameter);
  if (p.fill.seed != 0) text += fmt::format("@{}", p.fill.seed);
  return text;
}

template <TensorId id>
void parse_strides(CaseDraft& d, std::string_view text) {
  d.strides[static_cast<std::size_t>(id)] = integers(fmt::format("strides.{}", name_of(id)), text);
}

template <TensorId id>
std::string print_strides(const Problem& p) {
  const std::optional<Strides>& strides = p.strides[static_cast<std::size_t>(id)];
  if (!strides) return "";
  if (p.layout == Layout::thd) return fmt::format("{},{}", strides->seq, strides->head);
  return fmt::format("{},{},{}", strides->batch, strides->seq, strides->head);
}

void parse_batch(CaseDraft& d, std::string_view text) {
  const std::int64_t batch = integer("batch", text);
  if (batch < 1 || batch > (1 << 20)) refuse("batch", text, "1 to 1048576");
  d.batch = batch;
}

constexpr std::string_view kStrideForm = "BATCH,SEQ,HEAD";
constexpr std::string_view kStrideMeaning = "strides in elements (packed: SEQ,HEAD); default contiguous; inputs may have 0";

const CaseField kFields[] = {
    {"dtype", "f64|f32|f16|bf16|f8e4m3|f8e5m2", "type of q k v do; default f32",
     [](CaseDraft& d, std::string_view t) { d.problem.dtype = dtype("dtype", t); },
     [](const Problem& p) { return std::string(name_of(p.dtype)); }},
    {"out", "f64|f32|f16|bf16", "type of o dq dk dv; default dtype (f16 for f8)",
     [](CaseDraft& d, std::string_view t) { d.problem.out_dtype = dtype("out", t); },
     [](const Problem& p) { return p.out_dtype ? std::string(name_of(*p.out_dtype)) : ""; }},
    {"layout", "bshd|bhsd|thd", "padded (batch, sequence, head) orders, or packed; default bshd",
     [](CaseDraft& d, std::string_view t) { d.problem.layout = kLayouts.parse(t); },
     [](const Problem& p) { return kLayouts.print(p.layout); }},
    {"pad", "right|left", "side of a padded tensor that holds no tokens; default right",
     [](CaseDraft& d, std::string_view t) { d.problem.pad = kPads.parse(t); },
     [](const Problem& p) { return kPads.print(p.pad); }},
    {"batch", "N", "sequences, where all have the lengths q and k; default 1", parse_batch,
     [](const Problem& p) { return prints_batch(p) ? fmt::format("{}", p.batch()) : ""; }},
    {"q", "N[,N...]", "query length of each sequence, 0 and more; default 128",
     [](CaseDraft& d, std::string_view t) { d.problem.seq_q = integers("q", t); d.has_lengths_q = true; },
     [](const Problem& p) { return print_lengths(p, p.seq_q); }},
    {"k", "N[,N...]", "key length of each sequence, 0 and more; default 128",
     [](CaseDraft& d, std::string_view t) { d.problem.seq_k = integers("k", t); d.has_lengths_k = true; },
     [](const Problem& p) { return print_lengths(p, p.seq_k); }},
    {"cuq", "0,N,...", "packed only: query offsets instead of q, first 0, never falling",
     [](CaseDraft& d, std::string_view t) { d.cu_q = integers("cuq", t); }, nullptr},
    {"cuk", "0,N,...", "packed only: key offsets instead of k",
     [](CaseDraft& d, std::string_view t) { d.cu_k = integers("cuk", t); }, nullptr},
    {"qrows", "N", "rows of padded q-side tensors (default max q), tokens of packed ones (default sum q)",
     [](CaseDraft& d, std::string_view t) { d.problem.extent_q = integer("qrows", t); },
     [](const Problem& p) { return p.extent_q ? fmt::format("{}", *p.extent_q) : ""; }},
    {"krows", "N", "the same for k and v",
     [](CaseDraft& d, std::string_view t) { d.problem.extent_k = integer("krows", t); },
     [](const Problem& p) { return p.extent_k ? fmt::format("{}", *p.extent_k) : ""; }},
    {"page", "N", "tokens of a page of k and v, found through a page table; direction=forward only; default 0, not paged",
     [](CaseDraft& d, std::string_view t) { d.problem.page_size = integer("page", t); },
     [](const Problem& p) { return fmt::format("{}", p.page_size); }},
    {"heads", "HQ[/HKV]", "query heads, key/value heads; HQ a multiple of HKV; default 1", parse_heads, print_heads},
    {"dim", "D[/DV]", "width of q and k, width of v and o; default 64", parse_dim, print_dim},
    {"scale", "X", "multiplies <q,k>; any finite number; default 1/sqrt(D)",
     [](CaseDraft& d, std::string_view t) { d.problem.scale = real("scale", t); },
     [](const Problem& p) { return p.scale ? fmt::format("{}", *p.scale) : ""; }},
    {"softcap", "X", "scores become X tanh(s/X); default 0, off",
     [](CaseDraft& d, std::string_view t) { d.problem.softcap = real("softcap", t); },
     [](const Problem& p) { return fmt::format("{}", p.softcap); }},
    {"bias", "SHAPE[:DTYPE][:hide=X]", "additive bias, SHAPE of bhqk with 1 where broadcast; a share X is -inf",
     parse_bias, print_bias},
    {"alibi", "on|off", "ALiBi, slope of head h 2^(-8(h+1)/HQ); default off",
     [](CaseDraft& d, std::string_view t) { d.problem.alibi = on_off("alibi", t); },
     [](const Problem& p) { return std::string(p.alibi ? "on" : "off"); }},
    {"causal", "none|top-left|bottom-right", "top-left: j <= i; bottom-right: j <= i + k - q; default none",
     [](CaseDraft& d, std::string_view t) { d.problem.causal = kCausals.parse(t); },
     [](const Problem& p) { return kCausals.print(p.causal); }},
    {"window", "LEFT,RIGHT[,ALIGNMENT]", "keys i+s-LEFT to i+s+RIGHT, -1 no limit; alignment as causal's",
     parse_window, print_window},
    {"mask", "SHAPE[:DENSITY]", "explicit boolean mask, random with that density; default 0.5", parse_mask, print_mask},
    {"block", "ROWSxCOLS:PATTERN", "block mask; PATTERN of local=W global=G random=X joined by +", parse_block,
     print_block},
    {"dropout", "P[@SEED[+OFFSET]]", "probability in [0,1) of dropping, Philox seed and offset", parse_dropout,
     print_dropout},
    {"direction", "forward|backward|both", "backward alone gets the exact o and lse; default both",
     [](CaseDraft& d, std::string_view t) { d.problem.direction = kDirections.parse(t); },
     [](const Problem& p) { return kDirections.print(p.direction); }},
    {"dlse", "on|off", "backward also gets a gradient of lse; default off",
     [](CaseDraft& d, std::string_view t) { d.problem.d_lse = on_off("dlse", t); },
     [](const Problem& p) { return std::string(p.d_lse ? "on" : "off"); }},
    {"dbias", "on|off", "backward also returns the gradient of the bias; default off",
     [](CaseDraft& d, std::string_view t) { d.problem.d_bias = on_off("dbias", t); },
     [](const Problem& p) { return std::string(p.d_bias ? "on" : "off"); }},
    {"strides.q", kStrideForm, kStrideMeaning, parse_strides<TensorId::q>, print_strides<TensorId::q>},
    {"strides.k", kStrideForm, "the same for k", parse_strides<TensorId::k>, print_strides<TensorId::k>},
    {"strides.v", kStrideForm, "the same for v", parse_strides<TensorId::v>, print_strides<TensorId::v>},
    {"strides.o", kStrideForm, "the same for o", parse_strides<TensorId::o>, print_strides<TensorId::o>},
    {"strides.do", kStrideForm, "the same for do", parse_strides<TensorId::d_o>, print_strides<TensorId::d_o>},
    {"strides.dq", kStrideForm, "the same for dq", parse_strides<TensorId::dq>, print_strides<TensorId::dq>},
    {"strides.dk", kStrideForm, "the same for dk", parse_strides<TensorId::dk>, print_strides<TensorId::dk>},
    {"strides.dv", kStrideForm, "the same for dv", parse_strides<TensorId::dv>, print_strides<TensorId::dv>},
    {"fill", "FAMILY[:X][@SEED]|file:PATH", "how inputs are made; default normal", parse_fill, print_fill},
};

void lengths_from_offsets(std::string_view field, std::string_view lengths_field, bool has_lengths, Layout layout,
                          const std::vector<std::int64_t>& cu, std::vector<std::int64_t>& lengths) {
  const std::string value = fmt::format("{}", fmt::join(cu, ","));
  if (layout != Layout::thd) refuse(field, value, "offsets only with layout=thd");
  if (has_lengths) refuse(field, value, fmt::format("either {} or {}", field, lengths_field));
  if (cu.size() < 2 || cu.front() != 0) refuse(field, value, "at least two offsets, the first 0");
  lengths.clear();
  for (std::size_t b = 1; b < cu.size(); ++b) {
    if (cu[b] < cu[b - 1]) {
      refuse(field, value, fmt::format("offsets never fall, but {} follows {} at position {}", cu[b], cu[b - 1], b));
    }
    lengths.push_back(cu[b] - cu[b - 1]);
  }
}

}  // namespace

std::span<const CaseField> case_fields() { return kFields; }

void settle_strides(CaseDraft& draft) {
  Problem& p = draft.problem;
  const bool packed = p.layout == Layout::thd;
  for (const TensorId id : kTensorIds) {
    const std::vector<std::int64_t>& numbers = draft.strides[static_cast<std::size_t>(id)];
    if (numbers.empty()) continue;
    if (numbers.size() != (packed ? 2u : 3u)) {
      refuse(fmt::format("strides.{}", name_of(id)), fmt::format("{}", fmt::join(numbers, ",")),
             packed ? "SEQ,HEAD for a packed layout" : "BATCH,SEQ,HEAD for a padded layout");
    }
    p.strides[static_cast<std::size_t>(id)] =
        packed ? Strides{0, numbers[0], numbers[1]} : Strides{numbers[0], numbers[1], numbers[2]};
  }
}

void settle_offsets(CaseDraft& draft) {
  Problem& p = draft.problem;
  if (draft.cu_q) lengths_from_offsets("cuq", "q", draft.has_lengths_q, p.layout, *draft.cu_q, p.seq_q);
  if (draft.cu_k) lengths_from_offsets("cuk", "k", draft.has_lengths_k, p.layout, *draft.cu_k, p.seq_k);
}

}  // namespace attest

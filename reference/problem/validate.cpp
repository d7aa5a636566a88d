// SPDX-License-Identifier: Apache-2.0
// The one place that decides whether a Problem can be asked for.
#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "reference/problem/exact_inputs.h"
#include "reference/problem/inputs.h"
#include "reference/problem/invalid_request.h"
#include "reference/problem/layout.h"
#include "reference/problem/problem.h"

namespace attest {
namespace {

constexpr std::int64_t kMaxLength = 2147483647;              // offsets and lengths are int32 in the ABI
constexpr std::int64_t kMaxHeads = 1 << 20;
constexpr std::int64_t kMaxWidth = 1 << 16;
constexpr std::int64_t kMaxOperandElements = std::int64_t{1} << 32;
constexpr double kMaxStorageElements = 4398046511104.0;      // 2^42: strides may be huge, products must not overflow

void require(bool allowed, const char* field, const std::string& value, const std::string& rule) {
  if (!allowed) throw InvalidRequest(field, value, rule);
}

void check_lengths(const Problem& p) {
  require(!p.seq_q.empty(), "q", "no sequence", "at least one length is needed");
  require(p.seq_q.size() == p.seq_k.size(), "k", fmt::format("{} lengths", p.seq_k.size()),
          fmt::format("one length per sequence, {} as in q", p.seq_q.size()));
  const auto check = [](const char* field, const std::vector<std::int64_t>& lengths) {
    for (const std::int64_t length : lengths) {
      if (length >= 0 && length <= kMaxLength) continue;
      throw InvalidRequest(field, fmt::format("{}", length), fmt::format("lengths are 0 to {}", kMaxLength));
    }
  };
  check("q", p.seq_q);
  check("k", p.seq_k);
}

void check_extent(const Problem& p, const char* field, std::int64_t rows, std::int64_t longest, std::int64_t total) {
  const bool packed = p.layout == Layout::thd;
  const std::int64_t least = packed ? total : longest;
  require(rows >= least && rows <= kMaxLength, field, fmt::format("{}", rows),
          fmt::format("{} to {} ({})", least, kMaxLength,
                      packed ? "packed: at least the sum of the lengths" : "padded: at least the longest sequence"));
}

void check_shape(const Problem& p) {
  require(p.heads_q >= 1 && p.heads_q <= kMaxHeads, "heads", fmt::format("{}/{}", p.heads_q, p.heads_kv),
          fmt::format("1 to {} query heads", kMaxHeads));
  require(p.heads_kv >= 1 && p.heads_q % p.heads_kv == 0, "heads", fmt::format("{}/{}", p.heads_q, p.heads_kv),
          "query heads must be a multiple of key/value heads, which are at least 1");
  require(p.dim >= 1 && p.dim <= kMaxWidth, "dim", fmt::format("{}", p.dim), fmt::format("1 to {}", kMaxWidth));
  require(p.width_v() >= 1 && p.width_v() <= kMaxWidth, "dim", fmt::format("{}/{}", p.dim, p.width_v()),
          fmt::format("width of v 1 to {}", kMaxWidth));
  require(p.pad == PadSide::right || p.layout != Layout::thd, "pad", "left", "packed layouts (thd) have no padding");
  check_extent(p, "qrows", p.rows_q(), p.max_q(), p.total_q());
  check_extent(p, "krows", p.rows_k(), p.max_k(), p.total_k());
}

void check_pages(const Problem& p) {
  const std::string value = fmt::format("{}", p.page_size);
  require(p.page_size >= 0 && p.page_size <= kMaxLength, "page", value, fmt::format("0 (not paged) to {}", kMaxLength));
  if (p.page_size == 0) return;
  require(!p.wants_backward(), "page", value, "0 unless direction=forward: paged keys have no gradients here");
  require(!p.extent_k, "krows", fmt::format("{}", p.rows_k()), "none where page is given: k and v are a pool of pages");
  for (const TensorId id : {TensorId::k, TensorId::v}) {
    const std::optional<Strides>& given = p.strides[static_cast<std::size_t>(id)];
    if (!given) continue;
    const std::string field = fmt::format("strides.{}", name_of(id));
    require(p.layout != Layout::thd, field.c_str(), fmt::format("{},{}", given->seq, given->head),
            "none for a pool of pages in the packed layout");
    require(given->batch > 0 && given->seq > 0, field.c_str(),
            fmt::format("{},{},{}", given->batch, given->seq, given->head), "pages and tokens of a pool are not shared");
  }
}

void check_types(const Problem& p) {
  const auto allowed_with = [&p](Dtype type) {
    return type == Dtype::f32 || type == Dtype::f16 || type == Dtype::bf16 ? p.dtype != Dtype::f64
                                                                          : type == Dtype::f64 && p.dtype == Dtype::f64;
  };
  require(allowed_with(p.output_dtype()), "out", std::string(name_of(p.output_dtype())),
          "f32, f16 or bf16; f64 where dtype is f64, and only then");
  if (p.bias) {
    require(allowed_with(p.bias_dtype()), "bias", std::string(name_of(p.bias_dtype())),
            "a bias is f32, f16 or bf16; f64 where dtype is f64, and only then");
    require(p.bias->hide >= 0 && p.bias->hide <= 1, "bias", fmt::format("hide={}", p.bias->hide), "hide is in [0, 1]");
  }
}

void check_scores(const Problem& p) {
  require(std::isfinite(p.effective_scale()), "scale", fmt::format("{}", p.scale.value_or(0)),
          "a number, finite as f32 (as f64 where dtype is f64)");
  require(std::isfinite(p.effective_softcap()) && p.softcap >= 0 && (p.softcap == 0 || p.effective_softcap() > 0),
          "softcap", fmt::format("{}", p.softcap), "0 (off) or a positive number, finite as f32");
  if (p.dropout) {
    require(p.dropout->p >= 0 && p.dropout->p < 1 && p.effective_dropout() < 1, "dropout",
            fmt::format("{}", p.dropout->p), "a probability in [0, 1)");
    require(p.dropout->offset < (std::uint64_t{1} << 32), "dropout", fmt::format("offset {}", p.dropout->offset),
            "an offset below 2^32");
  }
}

void check_operand_size(const Problem& p, const char* field, const Broadcast& shape) {
  double elements = 1;
  if (shape.batch) elements *= static_cast<double>(p.batch());
  if (shape.head) elements *= static_cast<double>(p.heads_q);
  if (shape.query) elements *= static_cast<double>(p.max_q());
  if (shape.key) elements *= static_cast<double>(p.max_k());
  require(elements <= static_cast<double>(kMaxOperandElements), field, fmt::format("{:g} elements", elements),
          fmt::format("at most {}", kMaxOperandElements));
}

void check_masks(const Problem& p) {
  if (p.window) {
    const Window& w = *p.window;
    const std::string value = fmt::format("{},{}", w.left, w.right);
    require(w.left >= -1 && w.right >= -1, "window", value, "each side is -1 (no limit) or 0 and more");
    require(w.alignment == Causal::none || p.causal == Causal::none, "window", value,
            "an alignment of its own only without causal, whose alignment it shares");
  }
  if (p.bias) check_operand_size(p, "bias", p.bias->shape);
  if (p.mask) {
    require(p.mask->density >= 0 && p.mask->density <= 1, "mask", fmt::format("{}", p.mask->density),
            "a density in [0, 1]");
    check_operand_size(p, "mask", p.mask->shape);
  }
  if (p.block) {
    const BlockMask& m = *p.block;
    const std::string value = fmt::format("{}x{}", m.rows, m.cols);
    require(m.rows >= 1 && m.cols >= 1 && m.rows <= kMaxLength && m.cols <= kMaxLength, "block", value,
            "tiles of at least 1x1");
    require(m.local >= -1 && m.global >= 0, "block", fmt::format("local={} global={}", m.local, m.global),
            "local -1 (none) or more, global 0 or more");
    require(m.random >= 0 && m.random <= 1, "block", fmt::format("random={}", m.random), "a share in [0, 1]");
  }
}

void check_strides(const Problem& p, TensorId id) {
  const std::optional<Strides>& given = p.strides[static_cast<std::size_t>(id)];
  if (!given) return;
  const std::string field = fmt::format("strides.{}", name_of(id));
  const Extents extents = extents_of(p, id);
  struct Dimension {
    std::int64_t extent, stride;
  };
  std::vector<Dimension> dimensions = {{extents.rows, given->seq}, {extents.heads, given->head}};
  if (p.layout != Layout::thd) dimensions.push_back({extents.batch, given->batch});
  const std::string value = p.layout == Layout::thd
                                ? fmt::format("{},{}", given->seq, given->head)
                                : fmt::format("{},{},{}", given->batch, given->seq, given->head);
  std::sort(dimensions.begin(), dimensions.end(), [](auto a, auto b) { return a.stride < b.stride; });
  double span = static_cast<double>(extents.width);
  for (const Dimension& d : dimensions) {
    require(d.stride >= 0, field.c_str(), value, "strides of 0 and more");
    if (d.extent <= 1) continue;
    if (d.stride == 0) {
      require(!is_output(id), field.c_str(), value, "outputs cannot be expanded (stride 0)");
      continue;
    }
    require(static_cast<double>(d.stride) >= span, field.c_str(), value,
            "elements must not overlap (an input may have stride 0)");
    span += static_cast<double>(d.extent - 1) * static_cast<double>(d.stride);
  }
  require(span <= kMaxStorageElements, field.c_str(), value, "at most 2^42 elements of storage");
}

void check_direction(const Problem& p) {
  require(!p.d_lse || p.wants_backward(), "dlse", "on", "only with direction=backward or both");
  require(!p.d_bias || p.wants_backward(), "dbias", "on", "only with direction=backward or both");
  require(!p.d_bias || p.bias.has_value(), "dbias", "on", "only with a bias");
}

void check_fill(const Problem& p) {
  const Family& found = family(p.fill.family);
  require(found.kind != FamilyKind::captured || !p.fill.path.empty(), "fill", p.fill.family, "file:PATH");
  if (found.kind == FamilyKind::exact) {
    const std::string needs = exact_family_needs(found.name, p);
    require(needs.empty(), "fill", p.fill.family, "it needs " + needs);
  }
  if (p.fill.parameter) {
    require(!found.parameter.empty(), "fill", fmt::format("{}:{}", p.fill.family, *p.fill.parameter),
            fmt::format("family {} takes no parameter", p.fill.family));
    require(std::isfinite(*p.fill.parameter), "fill", fmt::format("{}:{}", p.fill.family, *p.fill.parameter),
            "a finite parameter");
  }
}

}  // namespace

void validate(const Problem& problem) {
  check_lengths(problem);
  check_shape(problem);
  check_pages(problem);
  check_types(problem);
  check_scores(problem);
  check_masks(problem);
  check_direction(problem);
  for (const TensorId id : kTensorIds) check_strides(problem, id);
  check_fill(problem);
}

}  // namespace attest

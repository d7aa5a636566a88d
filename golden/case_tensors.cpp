// SPDX-License-Identifier: Apache-2.0
#include "golden/case_tensors.h"

#include <algorithm>
#include <stdexcept>

#include "reference/problem/layout.h"

namespace attest::golden {
namespace {

using Shape = std::vector<std::int64_t>;
using Doubles = std::vector<double>;

StoredType stored(Dtype type) { return static_cast<StoredType>(type); }  // the float types come in Dtype's order

/// Builds the list; `Pick` finds the values of one tensor in a case.
class Lister {
 public:
  explicit Lister(const Problem& problem) : p_(problem) {}

  template <typename Pick>
  void doubles(std::string name, StoredType type, Shape shape, Pick pick) {
    list_.push_back({std::move(name), type, std::move(shape),
                     [pick](const GoldenCase& c) { return pick(const_cast<GoldenCase&>(c)); },
                     [pick](GoldenCase& c, Doubles values) { pick(c) = std::move(values); }});
  }
  /// [tokens, heads, width]
  template <typename Pick>
  void values(std::string name, StoredType type, std::int64_t tokens, std::int64_t heads, std::int64_t width,
              Pick pick) {
    list_.push_back({std::move(name),
                     type,
                     {tokens, heads, width},
                     [pick](const GoldenCase& c) { return pick(const_cast<GoldenCase&>(c)).data; },
                     [pick, tokens, heads, width](GoldenCase& c, Doubles data) {
                       Values v;
                       v.tokens = tokens;
                       v.heads = heads;
                       v.width = width;
                       v.data = std::move(data);
                       pick(c) = std::move(v);
                     }});
  }
  template <typename Pick>
  void operand(std::string name, StoredType type, Shape shape, Pick pick) {
    list_.push_back({std::move(name), type, shape,
                     [pick](const GoldenCase& c) {
                       const auto& data = pick(const_cast<GoldenCase&>(c)).data;
                       return Doubles(data.begin(), data.end());
                     },
                     [pick, shape](GoldenCase& c, const Doubles& data) {
                       auto& to = pick(c);
                       to.extent_b = shape[0];
                       to.extent_h = shape[1];
                       to.extent_q = shape[2];
                       to.extent_k = shape[3];
                       to.data.assign(data.begin(), data.end());
                     }});
  }

  void inputs();
  void outputs(std::string prefix, StoredType type, bool bounds);
  std::vector<CaseTensor> take() { return std::move(list_); }

 private:
  /// Offsets and page tables follow from the case text: written for the reader of the file, and checked when read back.
  /// They are made when asked for, so that a short file with a long case text costs nothing.
  using Integers = std::vector<std::int64_t> (*)(const Problem&);
  void derived(std::string name, Shape shape, Integers integers, const char* what_differs);
  /// o or bounds.o, and so on.
  template <typename Of>
  void pair(std::string name, StoredType type, bool bounds, std::int64_t tokens, std::int64_t heads, std::int64_t width,
            Of of) {
    values(std::move(name), type, tokens, heads, width,
           [bounds, of](GoldenCase& c) -> Values& { return bounds ? of(c.bounds) : of(c.exact); });
  }

  const Problem& p_;
  std::vector<CaseTensor> list_;
};

void Lister::derived(std::string name, Shape shape, Integers integers, const char* what_differs) {
  list_.push_back({std::move(name), StoredType::i32, std::move(shape),
                   [integers](const GoldenCase& c) {
                     const std::vector<std::int64_t> values = integers(c.problem);
                     return Doubles(values.begin(), values.end());
                   },
                   [integers, what_differs](GoldenCase& c, const Doubles& got) {
                     const std::vector<std::int64_t> want = integers(c.problem);
                     if (!std::equal(got.begin(), got.end(), want.begin(), want.end())) {
                       throw std::invalid_argument(what_differs);
                     }
                   }});
}

void Lister::inputs() {
  const StoredType type = stored(p_.dtype);
  values("q", type, p_.total_q(), p_.heads_q, p_.dim, [](GoldenCase& c) -> Values& { return c.inputs.q; });
  values("k", type, p_.total_k(), p_.heads_kv, p_.dim, [](GoldenCase& c) -> Values& { return c.inputs.k; });
  values("v", type, p_.total_k(), p_.heads_kv, p_.width_v(), [](GoldenCase& c) -> Values& { return c.inputs.v; });
  if (p_.wants_backward()) {
    values("do", type, p_.total_q(), p_.heads_q, p_.width_v(), [](GoldenCase& c) -> Values& { return c.inputs.d_o; });
  }
  if (p_.d_lse) {
    doubles("dlse", stored(p_.lse_dtype()), {p_.total_q(), p_.heads_q},
            [](GoldenCase& c) -> Doubles& { return c.inputs.d_lse; });
  }
  derived(
      "cu_q", {p_.batch() + 1}, [](const Problem& p) { return token_offsets(p.seq_q); },
      "other offsets than the lengths of the case");
  derived(
      "cu_k", {p_.batch() + 1}, [](const Problem& p) { return token_offsets(p.seq_k); },
      "other offsets than the lengths of the case");
  if (p_.page_size > 0) {
    derived("page_table", {p_.batch(), pages_in_row(p_)}, page_table, "other pages than the case has");
  }
  if (p_.bias) {
    operand("bias", stored(p_.bias_dtype()), operand_shape(p_, p_.bias->shape),
            [](GoldenCase& c) -> Operand<double>& { return c.inputs.bias; });
  }
  if (p_.alibi) {
    doubles("alibi_slopes", StoredType::f32, {p_.heads_q},
            [](GoldenCase& c) -> Doubles& { return c.inputs.alibi_slopes; });
  }
  if (p_.mask) {
    operand("mask", StoredType::boolean, operand_shape(p_, p_.mask->shape),
            [](GoldenCase& c) -> Operand<std::uint8_t>& { return c.inputs.mask; });
  }
  if (p_.block) {
    const auto tiles = [](std::int64_t length, std::int64_t tile) { return (length + tile - 1) / tile; };
    operand("block_mask", StoredType::boolean,
            {p_.batch(), p_.heads_q, tiles(p_.max_q(), p_.block->rows), tiles(p_.max_k(), p_.block->cols)},
            [](GoldenCase& c) -> Operand<std::uint8_t>& { return c.inputs.block_mask; });
  }
  const bool by_head = p_.block || (p_.mask && p_.mask->shape.head);
  operand("visible", StoredType::boolean, {p_.batch(), by_head ? p_.heads_q : 1, p_.max_q(), p_.max_k()},
          [](GoldenCase& c) -> Operand<std::uint8_t>& { return c.visible; });
  if (p_.dropout) {
    operand("keep", StoredType::boolean, {p_.batch(), p_.heads_q, p_.max_q(), p_.max_k()},
            [](GoldenCase& c) -> Operand<std::uint8_t>& { return c.keep; });
  }
}

void Lister::outputs(std::string prefix, StoredType type, bool bounds) {
  pair(prefix + "o", type, bounds, p_.total_q(), p_.heads_q, p_.width_v(), [](auto& r) -> Values& { return r.o; });
  doubles(prefix + "lse", type, {p_.total_q(), p_.heads_q},
          [bounds](GoldenCase& c) -> Doubles& { return bounds ? c.bounds.lse : c.exact.lse; });
  if (!p_.wants_backward()) return;
  pair(prefix + "dq", type, bounds, p_.total_q(), p_.heads_q, p_.dim, [](auto& r) -> Values& { return r.dq; });
  pair(prefix + "dk", type, bounds, p_.total_k(), p_.heads_kv, p_.dim, [](auto& r) -> Values& { return r.dk; });
  pair(prefix + "dv", type, bounds, p_.total_k(), p_.heads_kv, p_.width_v(), [](auto& r) -> Values& { return r.dv; });
  if (!p_.d_bias) return;
  operand(prefix + "dbias", type, operand_shape(p_, p_.bias->shape),
          [bounds](GoldenCase& c) -> Operand<double>& { return bounds ? c.bounds.d_bias : c.exact.d_bias; });
}

template <typename Result>
std::vector<double>& values_by_name(Result& result, const std::string& name) {
  if (name == "o") return result.o.data;
  if (name == "lse") return result.lse;
  if (name == "dq") return result.dq.data;
  if (name == "dk") return result.dk.data;
  if (name == "dv") return result.dv.data;
  if (name == "dbias") return result.d_bias.data;
  throw std::logic_error("no output " + name);
}

}  // namespace

std::vector<std::int64_t> operand_shape(const Problem& problem, const Broadcast& shape) {
  return {shape.batch ? problem.batch() : 1, shape.head ? problem.heads_q : 1, shape.query ? problem.max_q() : 1,
          shape.key ? problem.max_k() : 1};
}

std::vector<CaseTensor> case_tensors(const Problem& problem) {
  Lister lister(problem);
  lister.inputs();
  lister.outputs("", StoredType::f64, false);
  lister.outputs("bound.", StoredType::f32, true);
  return lister.take();
}

std::vector<std::string> output_names(const Problem& problem) {
  std::vector<std::string> names = {"o", "lse"};
  if (problem.wants_backward()) names.insert(names.end(), {"dq", "dk", "dv"});
  if (problem.d_bias) names.emplace_back("dbias");
  return names;
}

std::vector<double>& output_values(Exact& exact, const std::string& name) { return values_by_name(exact, name); }
std::vector<double>& output_values(Bounds& bounds, const std::string& name) { return values_by_name(bounds, name); }

}  // namespace attest::golden

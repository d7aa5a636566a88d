// SPDX-License-Identifier: Apache-2.0
// A Problem is one attention call in the terms of the contract (docs/contract.md): shapes, layout, types,
// masks, dropout, direction and how its inputs are filled. It is a plain value; case_text.h prints and
// parses it. No data is held here.
//
// Symbols: B sequences, Hq query heads, Hkv key/value heads, Sq[b] and Sk[b] lengths, D width of q and k,
// Dv width of v and o.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/problem/dtype.h"

namespace attest {

enum class Layout : std::uint8_t { bshd, bhsd, thd };
enum class PadSide : std::uint8_t { right, left };
enum class Causal : std::uint8_t { none, top_left, bottom_right };
enum class Direction : std::uint8_t { forward, backward, both };

/// The tensors that have a storage type, a layout and strides of their own.
enum class TensorId : std::uint8_t { q, k, v, o, d_o, dq, dk, dv };
inline constexpr std::array<TensorId, 8> kTensorIds = {TensorId::q,   TensorId::k,  TensorId::v,  TensorId::o,
                                                       TensorId::d_o, TensorId::dq, TensorId::dk, TensorId::dv};
std::string_view name_of(TensorId id);  // "q" "k" "v" "o" "do" "dq" "dk" "dv"

/// Strides in elements; the innermost (D or Dv) is always 1. `batch` is unused by packed layouts.
struct Strides {
  std::int64_t batch = 0;
  std::int64_t seq = 0;
  std::int64_t head = 0;
  bool operator==(const Strides&) const = default;
};

/// Which dimensions of a [B, Hq, Sq, Sk] operand it has itself; the others are broadcast (extent 1).
struct Broadcast {
  bool batch = false;
  bool head = false;
  bool query = true;
  bool key = true;
  bool operator==(const Broadcast&) const = default;
};

/// Keys i + s - left ... i + s + right are visible, s = 0 (top_left) or Sk - Sq (bottom_right); -1: no limit.
/// `alignment` is none where the case's causal alignment decides (bottom_right when that is none too).
struct Window {
  std::int64_t left = -1;
  std::int64_t right = -1;
  Causal alignment = Causal::none;
  bool operator==(const Window&) const = default;
};

/// Additive bias, N(0,1) rounded to `dtype` (default f32 for f8 inputs, else the input type); a share `hide`
/// of its entries is -inf.
struct Bias {
  Broadcast shape;
  std::optional<Dtype> dtype;
  double hide = 0;
  bool operator==(const Bias&) const = default;
};

/// Explicit boolean mask: each entry shows with probability `density`, from a hash of its own indices and the
/// fill seed; where density < 1, one query row in sixteen (by hash, not when the query dimension is broadcast)
/// is wholly hidden.
struct ExplicitMask {
  Broadcast shape;
  double density = 0.5;
  bool operator==(const ExplicitMask&) const = default;
};

/// Block mask: tile (I, J) of rows x cols elements is shown if any pattern shows it. I and J count from the
/// start of the sequence; `local` w shows |J - I| <= w; `global` g shows I < g or J < g; `random` r shows a share r.
struct BlockMask {
  std::int64_t rows = 0;  // query rows of a tile
  std::int64_t cols = 0;  // keys of a tile
  std::int64_t local = -1;
  std::int64_t global = 0;
  double random = 0;
  bool operator==(const BlockMask&) const = default;
};

/// Philox4x32-10 with key = seed and counter (j / 4, i, b * Hq + h, offset); word j % 4 < (1 - p) * 2^32 keeps (b, h, i, j);
/// the product is not rounded, so that the threshold as an integer is its ceiling.
struct Dropout {
  double p = 0;
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;  // below 2^32
  bool operator==(const Dropout&) const = default;
};

/// How the inputs are made: a family of inputs.h with its optional parameter and seed, or `path`, a
/// safetensors file with captured tensors.
struct Fill {
  std::string family = "normal";
  std::optional<double> parameter;
  std::uint64_t seed = 0;
  std::string path;
  bool operator==(const Fill&) const = default;
};

struct Problem {
  Dtype dtype = Dtype::f32;        // q k v do
  std::optional<Dtype> out_dtype;  // o dq dk dv; default: dtype, f16 for f8 inputs

  Layout layout = Layout::bshd;
  PadSide pad = PadSide::right;              // padded layouts: where the tokens are not
  std::vector<std::int64_t> seq_q = {128};   // [B]
  std::vector<std::int64_t> seq_k = {128};   // [B]
  std::optional<std::int64_t> extent_q;      // padded: rows of the tensor (default max Sq); packed: tokens (default sum)
  std::optional<std::int64_t> extent_k;
  // Tokens of a page of k and v; 0: not paged. The pool and its page table are made by layout.h. Forward only.
  std::int64_t page_size = 0;

  std::int64_t heads_q = 1;
  std::int64_t heads_kv = 1;
  std::int64_t dim = 64;
  std::optional<std::int64_t> dim_v;  // default: dim

  std::optional<double> scale;  // default: 1 / sqrt(dim)
  double softcap = 0;           // 0: off
  std::optional<Bias> bias;
  bool alibi = false;  // slope of head h: 2^(-8 (h + 1) / Hq)

  Causal causal = Causal::none;
  std::optional<Window> window;
  std::optional<ExplicitMask> mask;
  std::optional<BlockMask> block;
  std::optional<Dropout> dropout;

  Direction direction = Direction::both;
  bool d_lse = false;   // backward also gets a gradient of LSE
  bool d_bias = false;  // backward also returns the gradient of the bias

  std::array<std::optional<Strides>, 8> strides;  // by TensorId; default: contiguous in `layout`
  Fill fill;

  bool operator==(const Problem&) const = default;

  std::int64_t batch() const { return static_cast<std::int64_t>(seq_q.size()); }
  std::int64_t width_v() const { return dim_v.value_or(dim); }
  std::int64_t group() const { return heads_q / heads_kv; }
  std::int64_t max_q() const;    // max Sq, 0 where there is none
  std::int64_t max_k() const;
  std::int64_t total_q() const;  // sum of Sq
  std::int64_t total_k() const;
  std::int64_t rows_q() const;   // extent_q or its default
  std::int64_t rows_k() const;

  Dtype output_dtype() const;
  Dtype lse_dtype() const { return dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32; }
  Dtype bias_dtype() const;

  /// Scale, softcap and dropout probability as the kernel gets them: rounded to f32 unless dtype is f64.
  double effective_scale() const;
  double effective_softcap() const;
  double effective_dropout() const;

  bool wants_forward() const { return direction != Direction::backward; }
  bool wants_backward() const { return direction != Direction::forward; }
};

/// Throws InvalidRequest naming the first field that breaks the contract.
void validate(const Problem& problem);

}  // namespace attest

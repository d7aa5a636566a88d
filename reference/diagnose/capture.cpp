// SPDX-License-Identifier: Apache-2.0
// The runbook's first question: is the call what it claims to be?
#include "reference/diagnose/capture.h"

#include <algorithm>
#include <charconv>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "reference/problem/case_text.h"
#include "reference/problem/input_operands.h"
#include "reference/problem/invalid_request.h"

namespace attest::diagnose {
namespace {

// Words of the case text that a capture may state; the rest is read from the tensors.
const std::set<std::string> kStated = {"layout", "pad", "causal", "window", "scale", "softcap", "alibi", "block", "dropout"};
const std::set<std::string> kDerived = {"dtype", "out", "batch", "q", "k", "cuq", "cuk", "qrows", "krows", "heads", "dim", "bias", "mask", "dlse", "dbias", "direction"};

bool is_float(const StoredTensor& tensor) { return tensor.type <= StoredType::f8e5m2; }
Dtype dtype_of(const StoredTensor& tensor) { return static_cast<Dtype>(tensor.type); }  // the float types come in Dtype's order

std::string preset_for(Dtype type) {
  switch (type) {
    case Dtype::f64: return "emulated-f64";
    case Dtype::f32: return "f32-simt";
    case Dtype::f16: return "f16-tensorcore";
    case Dtype::bf16: return "bf16-tensorcore";
    default: return "hopper-fp8";
  }
}

class Reader {
 public:
  Reader(const std::string& path, Lines& lines) : capture_{SafetensorsFile::map(path), {}, false}, lines_(lines) {}

  Capture read(const std::string& numerics) {
    const SafetensorsFile& file = capture_.file;
    for (const char* name : {"q", "k", "v"}) {
      const StoredTensor* tensor = file.find(name);
      if (tensor == nullptr) throw InvalidRequest(file.name(), fmt::format("no tensor {}", name), "a capture with q, k and v");
      if (!is_float(*tensor)) throw InvalidRequest(file.name(), fmt::format("tensor {} of {}", name, name_of(tensor->type)), "a float type");
    }
    read_metadata();
    Problem& p = capture_.evidence.problem;
    const bool shapes = check_shapes();
    if (!shapes || !read_lengths()) return std::move(capture_);
    p.direction = file.find("do") == nullptr ? Direction::forward : Direction::both;
    if (const StoredTensor* o = file.find("o"); o != nullptr && is_float(*o) && dtype_of(*o) != p.dtype) p.out_dtype = dtype_of(*o);
    read_operands();
    try {
      validate(p);
    } catch (const InvalidRequest& error) {
      lines_.push_back({"contract", Level::fault, error.what(), "docs/contract.md, \"Invalid calls\""});
      return std::move(capture_);
    }
    place_tensors();
    capture_.evidence.numerics = make_profile(numerics_preset(numerics.empty() ? preset_for(p.dtype) : numerics), p);
    lines_.insert(lines_.begin(), {"contract", Level::ok, fmt::format("q {}, k {}, v {}; {}", describe(*file.find("q")), describe(*file.find("k")), describe(*file.find("v")), print_case(p)), ""});
    capture_.usable = true;
    return std::move(capture_);
  }

 private:
  void fault(std::string what, std::string fix) { lines_.push_back({"contract", Level::fault, std::move(what), std::move(fix)}); }

  void read_metadata() {
    std::string text;
    for (const auto& [key, value] : capture_.file.metadata()) {
      if (key == "case") {
        text = value + " " + text;
      } else if (kStated.contains(key)) {
        text += fmt::format("{}={} ", key, value);
      } else if (kDerived.contains(key)) {
        stated_[key] = value;
      } else if (key == "max_q" || key == "max_k") {
        std::int64_t most = -1;
        const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), most);
        if (error != std::errc{} || end != value.data() + value.size()) throw InvalidRequest(key, "'" + value + "'", "a whole number");
        (key == "max_q" ? max_q_ : max_k_) = most;
      } else if (key.starts_with("strides.")) {
        strides_[key.substr(8)] = value;
      } else if (key != "format") {
        lines_.push_back({"contract", Level::note, fmt::format("metadata '{}' is no word of the case text and is ignored", key), ""});
      }
    }
    Problem& p = capture_.evidence.problem;
    p = parse_case(text);
    text_has_lengths_ = text.find("q=") == 0 || text.find(" q=") != std::string::npos || text.find("k=") == 0 || text.find(" k=") != std::string::npos;
    p.bias.reset();
    p.mask.reset();
  }

  /// Sizes of one tensor as the layout has them, {batch, rows, heads, width}; empty where the rank does not fit.
  std::vector<std::int64_t> sizes(const StoredTensor& tensor, Layout layout) const {
    const auto& s = tensor.shape;
    if (layout == Layout::thd) return s.size() == 3 ? std::vector<std::int64_t>{1, s[0], s[1], s[2]} : std::vector<std::int64_t>{};
    if (s.size() != 4) return {};
    return layout == Layout::bshd ? s : std::vector<std::int64_t>{s[0], s[2], s[1], s[3]};
  }

  std::string misfit(Layout layout) const {
    const SafetensorsFile& f = capture_.file;
    const auto q = sizes(*f.find("q"), layout), k = sizes(*f.find("k"), layout), v = sizes(*f.find("v"), layout);
    if (q.empty() || k.empty() || v.empty()) return fmt::format("layout {} has {} dimensions; q is {}, k {}, v {}", layout == Layout::thd ? "thd" : layout == Layout::bshd ? "bshd" : "bhsd", layout == Layout::thd ? 3 : 4, describe(*f.find("q")), describe(*f.find("k")), describe(*f.find("v")));
    if (q[0] != k[0] || k[0] != v[0]) return fmt::format("{}, {} and {} sequences in q, k and v", q[0], k[0], v[0]);
    if (k[1] != v[1]) return fmt::format("{} rows of k but {} of v", k[1], v[1]);
    if (k[2] != v[2]) return fmt::format("{} heads of k but {} of v", k[2], v[2]);
    if (q[3] != k[3]) return fmt::format("q has width {} and k {}", q[3], k[3]);
    if (q[2] == 0 || k[2] == 0 || q[2] % k[2] != 0) return fmt::format("{} query heads are no multiple of {} key/value heads", q[2], k[2]);
    return "";
  }

  bool check_shapes() {
    const SafetensorsFile& f = capture_.file;
    Problem& p = capture_.evidence.problem;
    if (const std::string why = misfit(p.layout); !why.empty()) {
      std::string fix = "check the shapes, and layout= in the metadata";
      for (const auto& [other, name] : {std::pair(Layout::bshd, "bshd"), std::pair(Layout::bhsd, "bhsd"), std::pair(Layout::thd, "thd")}) {
        if (other != p.layout && misfit(other).empty()) fix = fmt::format("the shapes fit layout={}: is that what was meant?", name);
      }
      fault(why, fix);
      return false;
    }
    const auto q = sizes(*f.find("q"), p.layout), k = sizes(*f.find("k"), p.layout), v = sizes(*f.find("v"), p.layout);
    p.dtype = dtype_of(*f.find("q"));
    for (const char* name : {"k", "v", "do"}) {
      const StoredTensor* tensor = f.find(name);
      if (tensor != nullptr && tensor->type != f.find("q")->type) {
        fault(fmt::format("q is {} and {} is {}", name_of(f.find("q")->type), name, name_of(tensor->type)), "q, k, v and do have one type");
        return false;
      }
    }
    p.heads_q = q[2];
    p.heads_kv = k[2];
    p.dim = q[3];
    if (v[3] != q[3]) p.dim_v = v[3];
    p.extent_q = q[1];
    p.extent_k = k[1];
    batch_ = q[0];
    if (p.layout != Layout::thd && q[2] > 4 * q[1] && q[1] > 1 && misfit(p.layout == Layout::bshd ? Layout::bhsd : Layout::bshd).empty()) {
      lines_.push_back({"contract", Level::warning, fmt::format("{} query heads and only {} rows", q[2], q[1]), fmt::format("is the layout {}?", p.layout == Layout::bshd ? "bhsd" : "bshd")});
    }
    const auto compare = [&](const char* field, const std::string& found) {
      const auto stated = stated_.find(field);
      if (stated == stated_.end() || stated->second == found) return;
      lines_.push_back({"contract", Level::warning, fmt::format("metadata says {}={}, the tensors {}", field, stated->second, found), "one of the two is wrong; the tensors are taken"});
    };
    for (const auto& [name, text] : strides_) {
      const StoredTensor* tensor = f.find(name);
      if (tensor == nullptr || !is_float(*tensor)) throw InvalidRequest("strides." + name, "'" + text + "'", "a tensor of the capture");
      if (tensor->shape.size() == f.find("q")->shape.size()) check_strides(*tensor, text, p.layout, lines_);
    }
    compare("dtype", std::string(name_of(p.dtype)));
    compare("heads", p.heads_q == p.heads_kv ? fmt::format("{}", p.heads_q) : fmt::format("{}/{}", p.heads_q, p.heads_kv));
    compare("dim", p.dim_v ? fmt::format("{}/{}", p.dim, *p.dim_v) : fmt::format("{}", p.dim));
    return check_results();
  }

  /// Shapes of the outputs and of do.
  bool check_results() {
    const SafetensorsFile& f = capture_.file;
    Problem& p = capture_.evidence.problem;
    for (const TensorId id : {TensorId::o, TensorId::d_o, TensorId::dq, TensorId::dk, TensorId::dv}) {
      const StoredTensor* tensor = f.find(name_of(id));
      if (tensor == nullptr) continue;
      const char* like = id == TensorId::dk ? "k" : id == TensorId::dv ? "v" : "q";
      std::vector<std::int64_t> want = f.find(like)->shape;
      if (id == TensorId::o || id == TensorId::d_o) want.back() = p.width_v();
      if (tensor->shape != want || !is_float(*tensor)) {
        fault(fmt::format("{} is {}", name_of(id), describe(*tensor)), fmt::format("a float tensor of shape [{}]", fmt::join(want, ", ")));
        return false;
      }
    }
    for (const char* name : {"lse", "dlse"}) {
      const StoredTensor* tensor = f.find(name);
      if (tensor == nullptr) continue;
      std::vector<std::int64_t> want = {p.heads_q, *p.extent_q};
      if (p.layout != Layout::thd) want.insert(want.begin(), batch_);
      if (tensor->shape != want || !is_float(*tensor)) {
        fault(fmt::format("{} is {}", name, describe(*tensor)), fmt::format("a float tensor of shape [{}]", fmt::join(want, ", ")));
        return false;
      }
    }
    return true;
  }

  std::vector<std::int64_t> integers(const char* name) const {
    const StoredTensor* tensor = capture_.file.find(name);
    std::vector<std::int64_t> values;
    if (tensor == nullptr) return values;
    if (tensor->type != StoredType::i32 && tensor->type != StoredType::i64) throw InvalidRequest(capture_.file.name(), fmt::format("{} of {}", name, name_of(tensor->type)), "I32 or I64");
    for (const double x : values_of(*tensor, capture_.file.name())) values.push_back(static_cast<std::int64_t>(x));
    return values;
  }

  bool read_side(bool query, std::vector<std::int64_t>& lengths) {
    const Problem& p = capture_.evidence.problem;
    const std::int64_t rows = query ? *p.extent_q : *p.extent_k;
    const char* offsets = query ? "cu_q" : "cu_k";
    const char* stated = query ? "seq_q" : "seq_k";
    const bool packed = p.layout == Layout::thd;
    const SafetensorsFile& f = capture_.file;
    Lengths found;
    if (packed && f.find(offsets) != nullptr) {
      found = check_offsets(offsets, integers(offsets), rows, lines_);
    } else if (packed && f.find(stated) != nullptr) {
      found = check_offsets(stated, integers(stated), rows, lines_);
    } else if (packed && !text_has_lengths_) {
      lines_.push_back({"offsets", Level::fault, fmt::format("no tensor {}", offsets), "a packed capture has cu_q and cu_k: B + 1 offsets"});
      return false;
    } else if (!packed && f.find(stated) != nullptr) {
      found = check_lengths(stated, integers(stated), batch_, rows, lines_);
    } else if (!packed && f.find(offsets) != nullptr) {
      lines_.push_back({"offsets", Level::warning, fmt::format("{} given for a padded layout", offsets), fmt::format("give lengths as {}", stated)});
      found = check_lengths(offsets, integers(offsets), batch_, rows, lines_);
    } else if (text_has_lengths_) {
      found.lengths = lengths;
      found = check_lengths(query ? "q" : "k", lengths, packed ? static_cast<std::int64_t>(lengths.size()) : batch_, rows, lines_);
    } else {
      found.lengths.assign(static_cast<std::size_t>(batch_), rows);
    }
    lengths = found.lengths;
    const std::optional<std::int64_t> most = query ? max_q_ : max_k_;
    const std::int64_t longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
    if (found.usable && most && *most < longest) {
      lines_.push_back({"offsets", Level::fault, fmt::format("{} is {}, the longest sequence has {} tokens", query ? "max_q" : "max_k", *most, longest), "kernels size their grid by it: rows past it are not written"});
    }
    return found.usable;
  }

  bool read_lengths() {
    Problem& p = capture_.evidence.problem;
    const bool q = read_side(true, p.seq_q), k = read_side(false, p.seq_k);
    if (!q || !k) return false;
    if (p.seq_q.size() != p.seq_k.size()) {
      lines_.push_back({"offsets", Level::fault, fmt::format("{} sequences of queries and {} of keys", p.seq_q.size(), p.seq_k.size()), "one offset list each for the same sequences"});
      return false;
    }
    return true;
  }

  template <typename T>
  Operand<T> operand(const char* name, Broadcast& shape) {
    const StoredTensor& tensor = *capture_.file.find(name);
    const Problem& p = capture_.evidence.problem;
    const std::int64_t want[] = {p.batch(), p.heads_q, p.max_q(), p.max_k()};
    // A padded call has them over all rows of its tensors, as often as over those of the longest sequence.
    const std::int64_t rows[] = {p.batch(), p.heads_q, p.layout == Layout::thd ? p.max_q() : p.rows_q(), p.layout == Layout::thd ? p.max_k() : p.rows_k()};
    Operand<T> operand;
    std::vector<std::int64_t> s = tensor.shape;
    while (s.size() < 4) s.insert(s.begin(), 1);
    bool fits = s.size() == 4;
    for (std::size_t n = 0; fits && n < 4; ++n) fits = s[n] == 1 || s[n] == want[n] || (s[n] == rows[n] && p.pad == PadSide::right);
    if (!fits) throw InvalidRequest(capture_.file.name(), fmt::format("{} {}", name, describe(tensor)), fmt::format("[{}], each its own or 1", fmt::join(want, ", ")));
    shape = {s[0] != 1 || want[0] == 1, s[1] != 1 || want[1] == 1, s[2] != 1 || want[2] == 1, s[3] != 1 || want[3] == 1};
    operand.extent_b = s[0], operand.extent_h = s[1], operand.extent_q = s[2], operand.extent_k = s[3];
    for (const double x : values_of(tensor, capture_.file.name())) operand.data.push_back(static_cast<T>(x));
    return operand;
  }

  void read_operands() {
    const SafetensorsFile& f = capture_.file;
    Evidence& e = capture_.evidence;
    if (const StoredTensor* bias = f.find("bias")) {
      if (!is_float(*bias)) throw InvalidRequest(f.name(), fmt::format("bias of {}", name_of(bias->type)), "a float type");
      Bias spec;
      e.operands.bias = operand<double>("bias", spec.shape);
      spec.dtype = dtype_of(*bias);
      e.problem.bias = spec;
    }
    Operand<std::uint8_t> mask;
    if (const StoredTensor* stored = f.find("mask")) {
      if (stored->type != StoredType::boolean && stored->type != StoredType::u8) throw InvalidRequest(f.name(), fmt::format("mask of {}", name_of(stored->type)), "BOOL or U8, 1 shows");
      ExplicitMask spec;
      mask = operand<std::uint8_t>("mask", spec.shape);
      e.problem.mask = spec;
    }
    const std::optional<ExplicitMask> spec = e.problem.mask;
    e.problem.mask.reset();  // its values are the file's, not a hash's
    add_operands(e.problem, e.operands);
    e.problem.mask = spec;
    e.operands.mask = std::move(mask);
    if (f.find("alibi_slopes") != nullptr) {
      e.operands.alibi_slopes = values_of(*f.find("alibi_slopes"), f.name());
      if (static_cast<std::int64_t>(e.operands.alibi_slopes.size()) != e.problem.heads_q) throw InvalidRequest(f.name(), "alibi_slopes " + describe(*f.find("alibi_slopes")), "[Hq]");
      e.problem.alibi = true;
    }
    e.problem.d_lse = f.find("dlse") != nullptr && e.problem.wants_backward();
    if (const StoredTensor* d_bias = f.find("dbias"); d_bias != nullptr && e.problem.wants_backward()) {
      const StoredTensor* bias = f.find("bias");
      if (bias == nullptr || bias->shape != d_bias->shape || !is_float(*d_bias)) throw InvalidRequest(f.name(), "dbias " + describe(*d_bias), bias == nullptr ? "a bias that it is the gradient of" : "a float tensor of the shape of " + describe(*bias));
      e.problem.d_bias = true;
      e.d_bias = operand_rows(d_bias->data.data(), dtype_of(*d_bias), e.operands.bias);
    }
  }

  void place_tensors() {
    Evidence& e = capture_.evidence;
    const Problem& p = e.problem;
    const SafetensorsFile& f = capture_.file;
    for (const TensorId id : kTensorIds) {
      const StoredTensor* tensor = f.find(name_of(id));
      if (tensor == nullptr) continue;
      const Extents extents = extents_of(p, id);
      e.tensors[static_cast<std::size_t>(id)] = TensorRows(tensor->data.data(), dtype_of(*tensor), extents, strides_of(p, id));
    }
    const std::int64_t rows = p.rows_q();
    const Extents extents = {p.layout == Layout::thd ? 1 : p.batch(), rows, p.heads_q, 1};
    const Strides strides = {.batch = p.heads_q * rows, .seq = 1, .head = rows};
    if (const StoredTensor* lse = f.find("lse")) e.lse = TensorRows(lse->data.data(), dtype_of(*lse), extents, strides);
    if (const StoredTensor* d_lse = f.find("dlse")) e.d_lse = TensorRows(d_lse->data.data(), dtype_of(*d_lse), extents, strides);
  }

  Capture capture_;
  Lines& lines_;
  std::map<std::string, std::string> stated_;
  std::map<std::string, std::string> strides_;  // by tensor
  std::optional<std::int64_t> max_q_, max_k_;
  std::int64_t batch_ = 1;
  bool text_has_lengths_ = false;
};

}  // namespace

Capture read_capture(const std::string& path, const std::string& numerics, Lines& lines) { return Reader(path, lines).read(numerics); }

}  // namespace attest::diagnose

// SPDX-License-Identifier: Apache-2.0
#include "tests/support/capture_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <sstream>

#include <unistd.h>

#include "reference/problem/case_text.h"
#include "reference/problem/layout.h"

namespace attest::testing_support {
namespace {

template <typename T>
std::vector<double> doubles(const std::vector<T>& x) { return {x.begin(), x.end()}; }

template <typename T>
std::vector<std::int64_t> shape_of(const Operand<T>& x) { return {x.extent_b, x.extent_h, x.extent_q, x.extent_k}; }

}  // namespace

CaptureFile::CaptureFile(const std::string& text, const Fault& fault) : problem_(parse_case(text)) {
  const Inputs inputs = make_inputs(problem_);
  const StoredInputs stored = store(problem_, inputs, 5);
  const Exact exact = faulty_attention(problem_, inputs, stored, fault);
  for (const TensorId id : {TensorId::q, TensorId::k, TensorId::v, TensorId::d_o}) {
    const StoredTensorValues& t = stored.tensors[static_cast<std::size_t>(id)];
    if (!t.data.empty()) add(std::string(name_of(id)), problem_.dtype, shape_of(id), t.data);
  }
  place(TensorId::o, exact.o);
  place(TensorId::dq, exact.dq);
  place(TensorId::dk, exact.dk);
  place(TensorId::dv, exact.dv);
  place_lse("lse", exact.lse);
  place_lse("dlse", inputs.d_lse);
  if (problem_.bias) add("bias", problem_.bias_dtype(), testing_support::shape_of(inputs.bias), inputs.bias.data);
  if (problem_.d_bias) add("dbias", problem_.lse_dtype(), testing_support::shape_of(inputs.bias), exact.d_bias.data);
  if (problem_.alibi) add("alibi_slopes", Dtype::f32, {problem_.heads_q}, inputs.alibi_slopes);
  if (problem_.mask) {
    Tensor mask{StoredType::boolean, Dtype::f64, testing_support::shape_of(inputs.mask), std::vector<std::byte>(inputs.mask.data.size())};
    std::memcpy(mask.bytes.data(), inputs.mask.data.data(), mask.bytes.size());
    tensors["mask"] = std::move(mask);
  }
  const bool packed = problem_.layout == Layout::thd;
  add_integers(packed ? "cu_q" : "seq_q", packed ? token_offsets(problem_.seq_q) : problem_.seq_q);
  add_integers(packed ? "cu_k" : "seq_k", packed ? token_offsets(problem_.seq_k) : problem_.seq_k);
  // What tensors do not say is the case's own words.
  Problem words;
  words.layout = problem_.layout;
  words.pad = problem_.pad;
  words.causal = problem_.causal;
  words.window = problem_.window;
  words.scale = problem_.scale;
  words.softcap = problem_.softcap;
  words.alibi = problem_.alibi;
  words.block = problem_.block;
  words.dropout = problem_.dropout;
  words.fill = problem_.fill;
  std::istringstream printed(print_case(words));
  for (std::string word; printed >> word;) {
    const std::size_t at = word.find('=');
    const std::string field = word.substr(0, at);
    if (field == "fill") metadata["case"] = word;  // where the block mask comes from
    if (field != "fill" && field != "q" && field != "k") metadata[field] = word.substr(at + 1);
  }
  metadata["layout"] = std::array{"bshd", "bhsd", "thd"}[static_cast<std::size_t>(problem_.layout)];
}

void CaptureFile::place(TensorId id, const Values& values) {
  if (values.empty()) return;
  std::vector<double> data(static_cast<std::size_t>(storage_elements(problem_, id)), 0);
  const auto& lengths = is_query_side(id) ? problem_.seq_q : problem_.seq_k;
  std::int64_t token = 0;
  for (std::int64_t b = 0; b < problem_.batch(); ++b) {
    for (std::int64_t i = 0; i < lengths[b]; ++i, ++token) {
      for (std::int64_t h = 0; h < values.heads; ++h) {
        const auto row = values.row(token, h);
        std::copy(row.begin(), row.end(), data.begin() + offset_of(problem_, id, b, i, h));
      }
    }
  }
  add(std::string(name_of(id)), problem_.output_dtype(), shape_of(id), data);
}

void CaptureFile::place_lse(const std::string& name, const std::vector<double>& values) {
  if (values.empty()) return;
  const bool packed = problem_.layout == Layout::thd;
  const std::int64_t rows = problem_.rows_q();
  std::vector<std::int64_t> shape = {problem_.heads_q, rows};
  if (!packed) shape.insert(shape.begin(), problem_.batch());
  std::vector<double> data(static_cast<std::size_t>((packed ? 1 : problem_.batch()) * problem_.heads_q * rows), 0);
  std::size_t token = 0;
  for (std::int64_t b = 0; b < problem_.batch(); ++b) {
    for (std::int64_t i = 0; i < problem_.seq_q[b]; ++i, ++token) {
      const std::int64_t row = row_of_token(problem_, TensorId::o, b, i);
      for (std::int64_t h = 0; h < problem_.heads_q; ++h) {
        data[static_cast<std::size_t>(((packed ? 0 : b) * problem_.heads_q + h) * rows + row)] = values[token * static_cast<std::size_t>(problem_.heads_q) + static_cast<std::size_t>(h)];
      }
    }
  }
  add(name, problem_.lse_dtype(), shape, data);
}

std::vector<double> CaptureFile::values(const std::string& name) const {
  const Tensor& t = tensors.at(name);
  std::vector<double> x(t.bytes.size() / static_cast<std::size_t>(format_of(t.type).bytes));
  load_all(t.type, t.bytes.data(), x);
  return x;
}

void CaptureFile::add(const std::string& name, Dtype type, std::vector<std::int64_t> shape, const std::vector<double>& data) {
  Tensor tensor{static_cast<StoredType>(type), type, std::move(shape), std::vector<std::byte>(data.size() * static_cast<std::size_t>(format_of(type).bytes))};
  store_all(type, data, tensor.bytes.data());
  tensors[name] = std::move(tensor);
}

void CaptureFile::add_integers(const std::string& name, const std::vector<std::int64_t>& data) {
  Tensor tensor{StoredType::i64, Dtype::f64, {static_cast<std::int64_t>(data.size())}, std::vector<std::byte>(data.size() * 8)};
  std::memcpy(tensor.bytes.data(), data.data(), tensor.bytes.size());
  tensors[name] = std::move(tensor);
}

void CaptureFile::set(const std::string& name, std::size_t at, double value) {
  std::vector<double> x = values(name);
  x[at] = value;
  add(name, tensors.at(name).type, tensors.at(name).shape, x);
}

void CaptureFile::write(const std::string& path) const {
  std::vector<StoredTensor> list;
  for (const auto& [name, t] : tensors) list.push_back({name, t.stored, t.shape, t.bytes});
  write_safetensors(path, list, metadata);
}

diagnose::Diagnosis CaptureFile::diagnose() const {
  const std::string path = (std::filesystem::temp_directory_path() / ("attest_capture_" + std::to_string(::getpid()) + "_" + std::to_string(reinterpret_cast<std::uintptr_t>(this)) + ".safetensors")).string();
  write(path);
  const diagnose::Diagnosis diagnosis = diagnose::diagnose_capture(path);
  std::filesystem::remove(path);
  return diagnosis;
}

std::vector<std::int64_t> CaptureFile::shape_of(TensorId id) const {
  const Extents e = extents_of(problem_, id);
  if (problem_.layout == Layout::thd) return {e.rows, e.heads, e.width};
  if (problem_.layout == Layout::bhsd) return {e.batch, e.heads, e.rows, e.width};
  return {e.batch, e.rows, e.heads, e.width};
}

bool says(const diagnose::Diagnosis& diagnosis, const std::string& stage, const std::string& words) {
  return std::any_of(diagnosis.lines.begin(), diagnosis.lines.end(), [&](const diagnose::Line& line) {
    return line.stage == stage && (line.what + line.fix).find(words) != std::string::npos;
  });
}

}  // namespace attest::testing_support

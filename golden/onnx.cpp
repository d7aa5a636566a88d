// SPDX-License-Identifier: Apache-2.0
// Field numbers are those of onnx/onnx.proto.
#include "golden/onnx.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "golden/protobuf.h"
#include "reference/problem/case_text.h"
#include "reference/problem/invalid_request.h"

namespace attest::golden {
namespace {

constexpr int kOpset = 23;      // the first with Attention
constexpr int kIrVersion = 11;  // the one that came with it
constexpr int kBool = 9;        // TensorProto.DataType

using Shape = std::vector<std::int64_t>;

/// One graph input or output with its values.
struct OnnxTensor {
  std::string name;
  int type;  // TensorProto.DataType
  Shape shape;
  std::string raw;  // little endian, row-major
};

int onnx_type(Dtype type) {
  switch (type) {
    case Dtype::f32:
      return 1;
    case Dtype::f16:
      return 10;
    default:
      return 16;  // bf16
  }
}

/// [B, heads, S, width], the order of the operator, from [tokens, heads, width].
OnnxTensor by_heads(std::string name, const Values& values, std::int64_t batch, Dtype type) {
  const std::int64_t length = values.tokens / batch;
  OnnxTensor tensor{std::move(name), onnx_type(type), {batch, values.heads, length, values.width}, {}};
  std::vector<double> row_major;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < values.heads; ++h) {
      for (std::int64_t i = 0; i < length; ++i) {
        const auto row = values.row(b * length + i, h);
        row_major.insert(row_major.end(), row.begin(), row.end());
      }
    }
  }
  tensor.raw.resize(row_major.size() * static_cast<std::size_t>(format_of(type).bytes));
  store_all(type, row_major, reinterpret_cast<std::byte*>(tensor.raw.data()));
  return tensor;
}

/// With equal lengths both alignments are one; top-left is what the operator does without a cache.
bool is_causal_alone(const Problem& p) {
  return p.causal != Causal::none && (p.causal == Causal::top_left || p.max_q() == p.max_k()) && !p.window && !p.mask &&
         !p.block;
}

bool hides_anything(const GoldenCase& golden) {
  return std::find(golden.visible.data.begin(), golden.visible.data.end(), 0) != golden.visible.data.end();
}

bool has_scores_added(const Problem& p) { return p.bias.has_value() || p.alibi; }

/// The mask operand, if the case needs one: boolean, or the bias with -inf where a pair is hidden.
std::optional<OnnxTensor> mask_operand(const GoldenCase& golden) {
  const Problem& p = golden.problem;
  const bool masked = hides_anything(golden) && !is_causal_alone(p);
  if (!masked && !has_scores_added(p)) return std::nullopt;
  const bool additive = has_scores_added(p);
  const std::int64_t batch = p.batch(), heads = additive ? p.heads_q : golden.visible.extent_h;
  OnnxTensor tensor{"attn_mask", additive ? onnx_type(p.dtype) : kBool, {batch, heads, p.max_q(), p.max_k()}, {}};
  std::vector<double> values;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t i = 0; i < p.max_q(); ++i) {
        for (std::int64_t j = 0; j < p.max_k(); ++j) {
          const bool shown = !masked || golden.visible.at(b, h, i, j) != 0;
          if (!additive) {
            tensor.raw += static_cast<char>(shown);
            continue;
          }
          double score = p.bias ? golden.inputs.bias.at(b, h, i, j) : 0;
          if (p.alibi) {
            score -= golden.inputs.alibi_slopes[static_cast<std::size_t>(h)] *
                     static_cast<double>(std::abs(i + p.max_k() - p.max_q() - j));
          }
          values.push_back(shown ? score : -std::numeric_limits<double>::infinity());
        }
      }
    }
  }
  if (additive) {
    tensor.raw.resize(values.size() * static_cast<std::size_t>(format_of(p.dtype).bytes));
    store_all(p.dtype, values, reinterpret_cast<std::byte*>(tensor.raw.data()));
  }
  return tensor;
}

ProtobufMessage tensor_proto(const OnnxTensor& tensor) {
  ProtobufMessage proto;
  for (const std::int64_t extent : tensor.shape) proto.integer(1, extent);
  return proto.integer(2, tensor.type).text(8, tensor.name).text(9, tensor.raw);
}

ProtobufMessage value_info(const OnnxTensor& tensor) {
  ProtobufMessage shape;
  for (const std::int64_t extent : tensor.shape) shape.message(1, ProtobufMessage().integer(1, extent));
  const ProtobufMessage type =
      ProtobufMessage().message(1, ProtobufMessage().integer(1, tensor.type).message(2, shape));
  return ProtobufMessage().text(1, tensor.name).message(2, type);
}

ProtobufMessage attribute(const char* name, float value) {
  return ProtobufMessage().text(1, name).real(2, value).integer(20, 1);
}
ProtobufMessage attribute(const char* name, std::int64_t value) {
  return ProtobufMessage().text(1, name).integer(3, value).integer(20, 2);
}

ProtobufMessage model(const GoldenCase& golden, const std::vector<OnnxTensor>& inputs, const OnnxTensor& output) {
  const Problem& p = golden.problem;
  ProtobufMessage node, graph;
  for (const OnnxTensor& input : inputs) node.text(1, input.name);
  node.text(2, output.name).text(4, "Attention");
  if (p.scale) node.message(5, attribute("scale", static_cast<float>(p.effective_scale())));
  if (p.softcap > 0) node.message(5, attribute("softcap", static_cast<float>(p.effective_softcap())));
  if (is_causal_alone(p)) node.message(5, attribute("is_causal", std::int64_t{1}));
  graph.message(1, node).text(2, "attention").text(10, print_case(p));
  for (const OnnxTensor& input : inputs) graph.message(11, value_info(input));
  graph.message(12, value_info(output));
  return ProtobufMessage()
      .integer(1, kIrVersion)
      .text(2, "attest")
      .message(7, graph)
      .message(8, ProtobufMessage().text(1, "").integer(2, kOpset));
}

NewFile file_of(std::string path, const ProtobufMessage& message) {
  const auto bytes = std::as_bytes(std::span(message.bytes()));
  return {std::move(path), {bytes.begin(), bytes.end()}};
}

}  // namespace

std::string why_not_onnx(const GoldenCase& golden) {
  const Problem& p = golden.problem;
  const auto equal = [](const std::vector<std::int64_t>& lengths) {
    return std::all_of(lengths.begin(), lengths.end(), [&](std::int64_t n) { return n == lengths.front() && n > 0; });
  };
  if (p.dtype != Dtype::f32 && p.dtype != Dtype::f16 && p.dtype != Dtype::bf16) return "a type of 8 or 64 bits";
  if (p.output_dtype() != p.dtype) return "an output type of its own";
  if (!equal(p.seq_q) || !equal(p.seq_k)) return "sequences of different or no length";
  if (p.wants_backward()) return "gradients";
  if (p.dropout) return "dropout";
  if (p.page_size > 0) return "pages";
  if (p.bias && p.bias_dtype() != p.dtype) return "a bias of another type than the inputs";
  // Slopes are powers of two for 1, 2, 4 and 8 heads.
  if (p.alibi && (p.dtype != Dtype::f32 || p.bias || 8 % p.heads_q != 0)) return "ALiBi that float32 may not hold";
  if (p.softcap > 0 && (hides_anything(golden) || has_scores_added(p))) return "softcap with a mask or bias";
  if (std::any_of(golden.exact.lse.begin(), golden.exact.lse.end(), [](double x) { return std::isinf(x); })) {
    return "a row that sees no key";
  }
  return "";
}

std::vector<NewFile> onnx_files(const GoldenCase& golden, const std::string& folder) {
  if (const std::string why = why_not_onnx(golden); !why.empty()) {
    throw InvalidRequest("onnx", fmt::format("'{}' with {}", print_case(golden.problem), why),
                         "a case that the ONNX Attention operator can say");
  }
  const Problem& p = golden.problem;
  std::vector<OnnxTensor> inputs = {by_heads("Q", golden.inputs.q, p.batch(), p.dtype),
                                    by_heads("K", golden.inputs.k, p.batch(), p.dtype),
                                    by_heads("V", golden.inputs.v, p.batch(), p.dtype)};
  if (const std::optional<OnnxTensor> mask = mask_operand(golden)) inputs.push_back(*mask);
  const OnnxTensor output = by_heads("Y", golden.exact.o, p.batch(), p.dtype);
  std::vector<NewFile> files = {file_of(folder + "/model.onnx", model(golden, inputs, output))};
  for (std::size_t n = 0; n < inputs.size(); ++n) {
    files.push_back(file_of(fmt::format("{}/test_data_set_0/input_{}.pb", folder, n), tensor_proto(inputs[n])));
  }
  files.push_back(file_of(folder + "/test_data_set_0/output_0.pb", tensor_proto(output)));
  return files;
}

}  // namespace attest::golden

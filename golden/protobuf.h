// SPDX-License-Identifier: Apache-2.0
// Writes messages in the Protocol Buffers wire format (protobuf.dev, "Encoding"): as much of it as ONNX files need.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace attest::golden {

class ProtobufMessage {
 public:
  ProtobufMessage& integer(int field, std::int64_t value);   // int64, int32, enum: a varint
  ProtobufMessage& real(int field, float value);             // fixed 32 bits
  ProtobufMessage& text(int field, std::string_view value);  // string or bytes
  ProtobufMessage& message(int field, const ProtobufMessage& value) { return text(field, value.bytes_); }

  const std::string& bytes() const { return bytes_; }

 private:
  void varint(std::uint64_t value);
  void key(int field, unsigned wire_type) { varint(static_cast<std::uint64_t>(field) << 3 | wire_type); }

  std::string bytes_;
};

}  // namespace attest::golden

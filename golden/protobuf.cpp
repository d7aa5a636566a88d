// SPDX-License-Identifier: Apache-2.0
#include "golden/protobuf.h"

#include <bit>

namespace attest::golden {
namespace {

constexpr unsigned kVarint = 0, kLengthDelimited = 2, kFixed32 = 5;

}  // namespace

void ProtobufMessage::varint(std::uint64_t value) {
  while (value >= 0x80) {
    bytes_ += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  bytes_ += static_cast<char>(value);
}

ProtobufMessage& ProtobufMessage::integer(int field, std::int64_t value) {
  key(field, kVarint);
  varint(static_cast<std::uint64_t>(value));
  return *this;
}

ProtobufMessage& ProtobufMessage::real(int field, float value) {
  key(field, kFixed32);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  for (int shift = 0; shift < 32; shift += 8) bytes_ += static_cast<char>(bits >> shift);
  return *this;
}

ProtobufMessage& ProtobufMessage::text(int field, std::string_view value) {
  key(field, kLengthDelimited);
  varint(value.size());
  bytes_ += value;
  return *this;
}

}  // namespace attest::golden

// SPDX-License-Identifier: Apache-2.0
// Any bytes are either refused with an InvalidRequest that names the file, or are a file whose tensors lie within it,
// can be read as numbers (or refused by name), and are the same after they have been written and read again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fuzz/require.h"
#include "reference/problem/invalid_request.h"
#include "reference/problem/safetensors.h"

namespace {

using attest::fuzz::require;

const char* const kFile = "captured.safetensors";

/// What `read` gives, or nothing where it refuses as it should.
template <typename Read>
auto unless_refused(Read read) -> std::optional<decltype(read())> {
  try {
    return read();
  } catch (const attest::InvalidRequest& refusal) {
    require(refusal.field() == kFile, "a refusal must name the file");
    require(!refusal.value().empty() && !refusal.allowed().empty(), "a refusal must say what was found and allowed");
    return std::nullopt;
  }
}

void check_values(const attest::StoredTensor& tensor) {
  const auto values = unless_refused([&] { return attest::values_of(tensor, kFile); });
  if (!values) return;
  require(values->size() * attest::bytes_of(tensor.type) == tensor.data.size(), "every element must be read");
}

void check_written_again(const attest::SafetensorsFile& file) {
  const std::vector<std::byte> bytes = attest::serialise(file.tensors(), file.metadata());
  const auto again = attest::SafetensorsFile::parse(kFile, bytes);
  require(again.metadata() == file.metadata(), "metadata must survive");
  require(again.tensors().size() == file.tensors().size(), "no tensor may be lost or gained");
  for (const attest::StoredTensor& tensor : file.tensors()) {
    const attest::StoredTensor* found = again.find(tensor.name);
    require(found != nullptr && found->type == tensor.type && found->shape == tensor.shape &&
                std::ranges::equal(found->data, tensor.data),
            "a tensor must survive");
  }
  require(attest::serialise(again.tensors(), again.metadata()) == bytes, "writing must be stable");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* first = reinterpret_cast<const std::byte*>(data);
  const auto file = unless_refused(
      [&] { return attest::SafetensorsFile::parse(kFile, std::vector<std::byte>(first, first + size)); });
  if (!file) return 0;
  for (const attest::StoredTensor& tensor : file->tensors()) check_values(tensor);
  check_written_again(*file);
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Reader and writer of safetensors files: 8 bytes of header length (little endian), a JSON header that gives each
// tensor's dtype, shape and data_offsets, then the data. A file that breaks the format anywhere is refused whole,
// with one InvalidRequest whose field is the file's name; memory never exceeds a small multiple of the file's size.
//
//   const SafetensorsFile file = SafetensorsFile::read("captured.safetensors");
//   if (const StoredTensor* q = file.find("q")) std::vector<double> values = values_of(*q, file.name());
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attest {

enum class StoredType : std::uint8_t { f64, f32, f16, bf16, f8e4m3, f8e5m2, i64, i32, u8, boolean };

std::string_view name_of(StoredType type);  // as in the file: "F64" "F32" "F16" "BF16" "F8_E4M3" ...
std::size_t bytes_of(StoredType type);

struct StoredTensor {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;  // row-major, little endian; belongs to the file, or to the writer's caller
};

using Metadata = std::map<std::string, std::string>;

class SafetensorsFile {
 public:
  static SafetensorsFile read(const std::string& path);
  /// The same without reading the data: it stays in the file, which must not change meanwhile.
  static SafetensorsFile map(const std::string& path);
  /// `name` stands for the file in errors.
  static SafetensorsFile parse(std::string name, std::vector<std::byte> bytes);

  const std::string& name() const { return name_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // in the order of their data
  const StoredTensor* find(std::string_view tensor) const;
  const Metadata& metadata() const { return metadata_; }

 private:
  SafetensorsFile() = default;
  static SafetensorsFile parse_view(std::string name, std::span<const std::byte> bytes, std::shared_ptr<const void> owner);

  std::string name_;
  std::shared_ptr<const void> owner_;  // of the bytes that the tensors point into
  std::vector<StoredTensor> tensors_;
  Metadata metadata_;
};

/// "F32 [2, 3]"
std::string describe(const StoredTensor& tensor);

/// Every element as a double; throws InvalidRequest where an integer is not one exactly, or a BOOL is not 0 or 1.
std::vector<double> values_of(const StoredTensor& tensor, const std::string& file_name);

/// The bytes of a file. Equal tensors give equal bytes, whatever their order: data by falling element size (so that
/// all of it is aligned), then by name.
std::vector<std::byte> serialise(std::vector<StoredTensor> tensors, const Metadata& metadata = {});
void write_safetensors(const std::string& path, std::vector<StoredTensor> tensors, const Metadata& metadata = {});

}  // namespace attest

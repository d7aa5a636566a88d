// SPDX-License-Identifier: Apache-2.0
#include "reference/problem/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "reference/problem/dtype.h"
#include "reference/problem/invalid_request.h"
#include "reference/problem/refusal.h"
#include "reference/problem/unique_names.h"

namespace attest {
namespace {

static_assert(std::endian::native == std::endian::little, "the data of safetensors files is little endian");

using Json = nlohmann::json;

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kMaxHeader = 100'000'000;  // the limit of the format's own library
constexpr std::string_view kMetadataKey = "__metadata__";

struct TypeEntry {
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array<TypeEntry, 10> kTypes = {{{"F64", 8},
                                               {"F32", 4},
                                               {"F16", 2},
                                               {"BF16", 2},
                                               {"F8_E4M3", 1},
                                               {"F8_E5M2", 1},
                                               {"I64", 8},
                                               {"I32", 4},
                                               {"U8", 1},
                                               {"BOOL", 1}}};

constexpr std::size_t kShown = 60;  // characters of a name

std::string shown_name(std::string_view name) { return in_quotes(name, kShown); }

/// The JSON header, in which no object may name a key twice.
Json parse_header(const std::string& file, std::string_view text) {
  try {
    Json header = parse_with_unique_names<Json>(text, [&](const std::string& twice) {
      refuse(file, fmt::format("{} twice in one object of the header", shown_name(twice)), "each name once");
    });
    if (!header.is_object()) refuse(file, "a header that is no JSON object", "an object of tensors");
    return header;
  } catch (const Json::exception&) {
    refuse(file, fmt::format("a header of {} bytes that is not JSON", text.size()), "a JSON object of tensors");
  }
}

std::string_view header_text(const std::string& file, std::span<const std::byte> bytes) {
  if (bytes.size() < kLengthBytes) {
    refuse(file, fmt::format("{} bytes", bytes.size()), "a safetensors file, which has at least 8 bytes");
  }
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  const std::size_t limit = std::min(bytes.size() - kLengthBytes, kMaxHeader);
  if (length > limit) {
    refuse(file, fmt::format("a header length of {} in a file of {} bytes", length, bytes.size()),
           fmt::format("at most {}", limit));
  }
  return {reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, static_cast<std::size_t>(length)};
}

Metadata parse_metadata(const std::string& file, const Json& entry) {
  if (!entry.is_object()) refuse(file, "__metadata__ that is no object", "an object of strings");
  Metadata metadata;
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string())
      refuse(file, fmt::format("__metadata__ {} that is no string", shown_name(key)), "strings alone");
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

StoredType parse_type(const std::string& file, const std::string& tensor, const Json& entry) {
  for (std::size_t n = 0; n < kTypes.size(); ++n) {
    if (entry.is_string() && entry.get_ref<const std::string&>() == kTypes[n].name) return static_cast<StoredType>(n);
  }
  std::vector<std::string_view> names;
  for (const TypeEntry& type : kTypes) names.push_back(type.name);
  refuse(file,
         fmt::format("tensor {} of dtype {}", shown_name(tensor),
                     entry.is_string() ? shown_name(entry.get<std::string>()) : "that is no string"),
         fmt::format("one of {}", fmt::join(names, ", ")));
}

/// A list of non-negative integers below 2^63.
std::vector<std::int64_t> parse_sizes(const std::string& file, const std::string& tensor, const char* field,
                                      const Json& entry) {
  const auto wrong = [&] {
    refuse(file, fmt::format("tensor {} with a wrong {}", shown_name(tensor), field),
           "a list of integers, 0 to 2^63 - 1");
  };
  if (!entry.is_array()) wrong();
  std::vector<std::int64_t> sizes;
  for (const Json& size : entry) {
    if (!size.is_number_unsigned() || size.get<std::uint64_t>() >> 63 != 0) wrong();
    sizes.push_back(size.get<std::int64_t>());
  }
  return sizes;
}

/// Bytes of a tensor of this shape, if they can be counted.
std::optional<std::int64_t> bytes_of_shape(StoredType type, const std::vector<std::int64_t>& shape) {
  auto total = static_cast<std::int64_t>(bytes_of(type));
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  for (const std::int64_t extent : shape) {
    if (__builtin_mul_overflow(total, extent, &total)) return std::nullopt;
  }
  return total;
}

StoredTensor parse_tensor(const std::string& file, const std::string& name, const Json& entry,
                          std::span<const std::byte> data) {
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets")) {
    refuse(file, fmt::format("an entry for tensor {}", shown_name(name)), "exactly dtype, shape and data_offsets");
  }
  StoredTensor tensor{
      name, parse_type(file, name, entry["dtype"]), parse_sizes(file, name, "shape", entry["shape"]), {}};
  const std::vector<std::int64_t> offsets = parse_sizes(file, name, "data_offsets", entry["data_offsets"]);
  if (offsets.size() != 2) {
    refuse(file, fmt::format("tensor {} with {} data_offsets", shown_name(name), offsets.size()),
           "a first and a last one");
  }
  const auto [begin, end] = std::pair(offsets[0], offsets[1]);
  const std::string range = fmt::format("tensor {} at bytes {} to {}", shown_name(name), begin, end);
  if (begin > end || end > static_cast<std::int64_t>(data.size())) {
    refuse(file, range, fmt::format("a range within the {} bytes of data", data.size()));
  }
  if (begin % static_cast<std::int64_t>(bytes_of(tensor.type)) != 0) {
    refuse(file, range,
           fmt::format("a multiple of {} bytes, the size of an element, as first byte", bytes_of(tensor.type)));
  }
  const std::optional<std::int64_t> bytes = bytes_of_shape(tensor.type, tensor.shape);
  if (bytes != end - begin) {
    refuse(file, range,
           bytes ? fmt::format("{} bytes for {}", *bytes, describe(tensor))
                 : fmt::format("a shape with fewer than 2^63 bytes, not {}", describe(tensor)));
  }
  tensor.data = data.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  return tensor;
}

/// Every byte of the data belongs to exactly one tensor; `tensors` are sorted by their data.
void check_cover(const std::string& file, const std::vector<StoredTensor>& tensors, std::span<const std::byte> data) {
  const std::byte* next = data.data();
  for (const StoredTensor& tensor : tensors) {
    const std::ptrdiff_t begin = tensor.data.data() - data.data();
    if (tensor.data.data() < next) {
      refuse(file, fmt::format("tensor {} at byte {}, inside the one before it", shown_name(tensor.name), begin),
             "tensors that do not overlap");
    }
    if (tensor.data.data() > next) {
      refuse(file, fmt::format("unused bytes before tensor {} at byte {}", shown_name(tensor.name), begin),
             "data without holes");
    }
    next += tensor.data.size();
  }
  if (next != data.data() + data.size()) {
    refuse(file, fmt::format("{} bytes after the last tensor", data.data() + data.size() - next), "data without holes");
  }
}

}  // namespace

std::string_view name_of(StoredType type) { return kTypes[static_cast<std::size_t>(type)].name; }
std::size_t bytes_of(StoredType type) { return kTypes[static_cast<std::size_t>(type)].bytes; }

std::string describe(const StoredTensor& tensor) {
  return fmt::format("{} [{}]", name_of(tensor.type), fmt::join(tensor.shape, ", "));
}

SafetensorsFile SafetensorsFile::parse(std::string name, std::vector<std::byte> bytes) {
  const auto owned = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return parse_view(std::move(name), *owned, owned);
}

SafetensorsFile SafetensorsFile::parse_view(std::string name, std::span<const std::byte> bytes,
                                            std::shared_ptr<const void> owner) {
  SafetensorsFile file;
  file.name_ = std::move(name);
  file.owner_ = std::move(owner);
  const std::string_view text = header_text(file.name_, bytes);
  const auto data = bytes.subspan(kLengthBytes + text.size());
  const Json header = parse_header(file.name_, text);
  for (const auto& [key, entry] : header.items()) {
    if (key == kMetadataKey) {
      file.metadata_ = parse_metadata(file.name_, entry);
    } else {
      file.tensors_.push_back(parse_tensor(file.name_, key, entry, data));
    }
  }
  std::sort(file.tensors_.begin(), file.tensors_.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(a.data.data(), a.data.size()) < std::pair(b.data.data(), b.data.size());
  });
  check_cover(file.name_, file.tensors_, data);
  return file;
}

SafetensorsFile SafetensorsFile::read(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) refuse(path, "no regular file", "a safetensors file");
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  std::ifstream stream(path, std::ios::binary);
  if (error || !stream) refuse(path, "a file that cannot be opened", "a safetensors file");
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (!stream) refuse(path, fmt::format("{} of {} bytes", stream.gcount(), size), "a file that can be read whole");
  return parse(path, std::move(bytes));
}

SafetensorsFile SafetensorsFile::map(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) refuse(path, "no regular file", "a safetensors file");
  const auto size = static_cast<std::size_t>(std::filesystem::file_size(path, error));
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (error || descriptor < 0) refuse(path, "a file that cannot be opened", "a safetensors file");
  void* address = size == 0 ? MAP_FAILED : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  close(descriptor);
  if (address == MAP_FAILED) refuse(path, fmt::format("{} bytes that cannot be mapped", size), "a safetensors file");
  const std::shared_ptr<const void> owner(address, [size](const void* at) { munmap(const_cast<void*>(at), size); });
  return parse_view(path, {static_cast<const std::byte*>(address), size}, owner);
}

const StoredTensor* SafetensorsFile::find(std::string_view tensor) const {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& t) { return t.name == tensor; });
  return found == tensors_.end() ? nullptr : &*found;
}

std::vector<double> values_of(const StoredTensor& tensor, const std::string& file_name) {
  std::vector<double> values(tensor.data.size() / bytes_of(tensor.type));
  if (tensor.type <= StoredType::f8e5m2) {
    load_all(static_cast<Dtype>(tensor.type), tensor.data.data(), values);  // the float types come in Dtype's order
    return values;
  }
  const auto read_integers = [&]<typename Integer>(Integer lowest, Integer largest) {
    for (std::size_t n = 0; n < values.size(); ++n) {
      Integer integer;
      std::memcpy(&integer, tensor.data.data() + n * sizeof integer, sizeof integer);
      if (integer < lowest || integer > largest) {
        refuse(file_name, fmt::format("tensor {} with the value {}", shown_name(tensor.name), integer),
               fmt::format("{} values from {} to {}", name_of(tensor.type), lowest, largest));
      }
      values[n] = static_cast<double>(integer);
    }
  };
  constexpr std::int64_t kExact = std::int64_t{1} << 53;  // integers up to here are doubles
  switch (tensor.type) {
    case StoredType::i64:
      read_integers(-kExact, kExact);
      break;
    case StoredType::i32:
      read_integers(std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max());
      break;
    case StoredType::u8:
      read_integers(std::uint8_t{0}, std::uint8_t{255});
      break;
    default:
      read_integers(std::uint8_t{0}, std::uint8_t{1});
      break;
  }
  return values;
}

std::vector<std::byte> serialise(std::vector<StoredTensor> tensors, const Metadata& metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(bytes_of(b.type), std::string_view(a.name)) <
           std::pair(bytes_of(a.type), std::string_view(b.name));
  });
  Json header = Json::object();
  if (!metadata.empty()) header[std::string(kMetadataKey)] = metadata;
  std::size_t end = 0;
  for (const StoredTensor& tensor : tensors) {
    const std::size_t begin = end;
    end += tensor.data.size();
    if (tensor.name == kMetadataKey || header.contains(tensor.name)) {
      refuse("safetensors", shown_name(tensor.name), "each tensor name once, and none called __metadata__");
    }
    if (bytes_of_shape(tensor.type, tensor.shape) != static_cast<std::int64_t>(tensor.data.size())) {
      refuse("safetensors", fmt::format("{} bytes for tensor {}", tensor.data.size(), shown_name(tensor.name)),
             describe(tensor));
    }
    header[tensor.name] = {{"dtype", name_of(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  std::vector<std::byte> bytes(kLengthBytes + text.size());
  std::memcpy(bytes.data(), &length, kLengthBytes);
  std::memcpy(bytes.data() + kLengthBytes, text.data(), text.size());
  for (const StoredTensor& tensor : tensors) bytes.insert(bytes.end(), tensor.data.begin(), tensor.data.end());
  return bytes;
}

void write_safetensors(const std::string& path, std::vector<StoredTensor> tensors, const Metadata& metadata) {
  const std::vector<std::byte> bytes = serialise(std::move(tensors), metadata);
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  stream.close();
  if (!stream) refuse(path, "a file that cannot be written", "a writable path");
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
#include "golden/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "golden/case_file.h"
#include "golden/pack_index.h"
#include "golden/sha256.h"
#include "reference/problem/case_text.h"
#include "reference/problem/refusal.h"

namespace attest::golden {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;  // of one file: far above what a pack holds
constexpr const char* kIndex = "index.json";

std::vector<std::byte> read_whole(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) refuse(path, "no regular file", "a file of a pack");
  const std::uintmax_t size = fs::file_size(path, error);
  if (error || size > kMostBytes) refuse(path, fmt::format("{} bytes", size), fmt::format("at most {}", kMostBytes));
  std::ifstream stream(path, std::ios::binary);
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (!stream) refuse(path, "a file that cannot be read", "a readable file");
  return bytes;
}

void write_file(const fs::path& path, std::span<const std::byte> bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  stream.close();
  if (!stream) refuse(path.string(), "a file that could not be written", "room and permission to write");
}

}  // namespace

Pack read_pack(const std::string& folder) {
  const std::string index = (fs::path(folder) / kIndex).string();
  const std::vector<std::byte> bytes = read_whole(index);
  Pack pack = parse_index(index, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  pack.folder = folder;
  return pack;
}

std::vector<std::byte> load_file(const Pack& pack, const PackFile& file) {
  const std::string path = (fs::path(pack.folder) / file.path).string();
  std::vector<std::byte> bytes = read_whole(path);
  if (bytes.size() != file.bytes) {
    refuse(path, fmt::format("{} bytes", bytes.size()), fmt::format("{}, as the index says", file.bytes));
  }
  if (const std::string hash = sha256(bytes); hash != file.sha256) {
    refuse(path, fmt::format("SHA-256 {}", hash), fmt::format("{}, as the index says", file.sha256));
  }
  return bytes;
}

GoldenCase load_case(const Pack& pack, const PackEntry& entry) {
  const std::string path = (fs::path(pack.folder) / entry.file.path).string();
  GoldenCase golden = read_case(SafetensorsFile::parse(path, load_file(pack, entry.file)));
  const auto same = [&](const char* what, bool equal) {
    if (!equal) refuse(path, fmt::format("another {} than in the index", what), "the case that the index lists");
  };
  same("case", print_case(golden.problem) == entry.text);
  same("profile", golden.profile == entry.profile);
  same("list of flags", golden.flags == entry.flags);
  same("set of elements", golden.set == entry.set);
  same("list of exact outputs", golden.exact_tensors == entry.exact_tensors);
  return golden;
}

GoldenCase load_case(const std::string& path) { return read_case(SafetensorsFile::parse(path, read_whole(path))); }

std::string case_name(const GoldenCase& golden) {
  constexpr std::size_t kLongest = 72;
  std::string name;
  for (const char c : print_case(golden.problem)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.';
    if (plain) {
      name += c;
    } else if (c == '/') {
      name += "over";
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  name = name.substr(0, kLongest);
  const std::string identity = print_case(golden.problem) + (golden.set.empty() ? "" : " # set: " + golden.set);
  return fmt::format("{}-{}", name.empty() ? "default" : name, sha256(identity).substr(0, 8));
}

void write_pack(const std::string& folder, const std::string& name, const std::vector<NewCase>& cases) {
  if (std::error_code error; fs::exists(folder, error) && !fs::is_empty(folder, error)) {
    refuse("output", fmt::format("'{}'", folder), "a folder that does not exist yet, or an empty one");
  }
  Pack pack{folder, name, {}};
  for (const NewCase& made : cases) {
    PackEntry entry{{},
                    print_case(made.golden.problem),
                    made.golden.set,
                    made.golden.profile,
                    made.golden.flags,
                    made.golden.exact_tensors,
                    {}};
    for (const NewFile& file : made.files) {
      write_file(fs::path(folder) / file.path, file.bytes);
      PackFile listed{file.path, file.bytes.size(), sha256(file.bytes)};
      if (entry.file.path.empty()) {
        entry.file = listed;
      } else {
        entry.others.push_back(listed);
      }
    }
    pack.entries.push_back(entry);
  }
  const std::string index = index_text(pack);
  write_file(fs::path(folder) / kIndex, std::as_bytes(std::span(index)));
}

}  // namespace attest::golden

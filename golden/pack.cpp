// SPDX-License-Identifier: Apache-2.0
#include "golden/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "golden/case_file.h"
#include "golden/flags.h"
#include "golden/format.h"
#include "golden/sha256.h"
#include "reference/problem/case_text.h"
#include "reference/problem/invalid_request.h"

namespace attest::golden {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;  // of one file: far above what a pack holds
constexpr const char* kIndex = "index.json";

[[noreturn]] void refuse(const std::string& file, const std::string& found, const std::string& allowed) {
  throw InvalidRequest(file, found, allowed);
}

/// Relative, without "..", of letters, digits and . _ - between slashes: nothing outside the folder can be named.
bool is_plain_path(const std::string& path) {
  if (path.empty() || path.front() == '/' || path.back() == '/' || path.find("..") != std::string::npos) return false;
  return std::all_of(path.begin(), path.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-' || c == '/';
  });
}

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

/// The fields of one object of the index, each there and of its type, and no others.
class Fields {
 public:
  Fields(const std::string& index, std::string what, const Json& object)
      : index_(index), what_(std::move(what)), object_(object) {
    if (!object.is_object()) refuse(index_, what_ + " that is no object", "an object");
  }
  std::string text(const char* key) { return get(key, &Json::is_string, "a string").get<std::string>(); }
  std::uint64_t number(const char* key) {
    return get(key, &Json::is_number_unsigned, "a whole number").get<std::uint64_t>();
  }
  const Json& list(const char* key) { return get(key, &Json::is_array, "a list"); }
  const Json& object(const char* key) { return get(key, &Json::is_object, "an object"); }
  std::vector<std::string> texts(const char* key) {
    std::vector<std::string> words;
    for (const Json& item : list(key)) {
      if (!item.is_string()) refuse(index_, fmt::format("{} with a \"{}\" of other things", what_, key), "strings");
      words.push_back(item.get<std::string>());
    }
    return words;
  }
  bool has(const char* key) const { return object_.contains(key); }
  void no_others() const {
    for (const auto& [key, value] : object_.items()) {
      if (!seen_.contains(key))
        refuse(index_, fmt::format("{} with a field \"{}\"", what_, key), "the fields of the format");
    }
  }

 private:
  const Json& get(const char* key, bool (Json::*is)() const noexcept, const char* type) {
    seen_.insert(key);
    if (!object_.contains(key)) refuse(index_, fmt::format("{} without \"{}\"", what_, key), type);
    if (!(object_[key].*is)()) refuse(index_, fmt::format("{} with a wrong \"{}\"", what_, key), type);
    return object_[key];
  }

  const std::string& index_;
  std::string what_;
  const Json& object_;
  std::set<std::string> seen_;
};

PackFile read_file_entry(const std::string& index, const std::string& what, Fields& fields) {
  PackFile file{fields.text("file"), fields.number("bytes"), fields.text("sha256")};
  if (!is_plain_path(file.path))
    refuse(index, fmt::format("{} with file \"{}\"", what, file.path), "a path within the folder");
  return file;
}

PackEntry read_entry(const std::string& index, std::size_t position, const Json& object) {
  const std::string what = fmt::format("case {}", position);
  Fields fields(index, what, object);
  PackEntry entry;
  entry.file = read_file_entry(index, what, fields);
  entry.text = fields.text("case");
  entry.profile = fields.text("profile");
  entry.flags = fields.texts("flags");
  if (fields.has("set")) entry.set = fields.text("set");
  if (fields.has("exact")) entry.exact_tensors = fields.texts("exact");
  if (fields.has("others")) {
    for (const Json& other : fields.list("others")) {
      Fields of_other(index, what + ", others", other);
      entry.others.push_back(read_file_entry(index, what, of_other));
      of_other.no_others();
    }
  }
  fields.no_others();
  return entry;
}

Json file_json(const PackFile& file) { return {{"file", file.path}, {"bytes", file.bytes}, {"sha256", file.sha256}}; }

Json entry_json(const PackEntry& entry) {
  Json json = {{"case", entry.text}, {"profile", entry.profile}, {"flags", entry.flags}};
  if (!entry.set.empty()) json["set"] = entry.set;
  if (!entry.exact_tensors.empty()) json["exact"] = entry.exact_tensors;
  json.update(file_json(entry.file));
  for (const PackFile& other : entry.others) json["others"].push_back(file_json(other));
  return json;
}

/// One case a line, so that a change of one shows as one.
std::string index_text(const Pack& pack) {
  std::set<std::string> used;
  for (const PackEntry& entry : pack.entries) used.insert(entry.flags.begin(), entry.flags.end());
  std::string text = fmt::format(
      "{{\n\"format\": \"{}\",\n\"format_version\": {},\n\"contract_version\": {},\n\"generator_version\": {},\n"
      "\"pack\": {},\n\"flags\": {{",
      kFormat, kFormatVersion, kContractVersion, kGeneratorVersion, Json(pack.name).dump());
  const char* separator = "\n";
  for (const std::string& name : used) {
    const Flag* flag = find_flag(name);
    text +=
        fmt::format("{}  {}: {}", separator, Json(name).dump(), Json(flag == nullptr ? "" : flag->description).dump());
    separator = ",\n";
  }
  text += "\n},\n\"cases\": [";
  separator = "\n";
  for (const PackEntry& entry : pack.entries) {
    text += separator + entry_json(entry).dump();
    separator = ",\n";
  }
  return text + "\n]\n}\n";
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
  Pack pack;
  pack.folder = folder;
  const std::string index = (fs::path(folder) / kIndex).string();
  const std::vector<std::byte> bytes = read_whole(index);
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  const Json json = Json::parse(text, text + bytes.size(), nullptr, false);
  if (json.is_discarded()) refuse(index, "a text that is not JSON", "the index of a pack");
  Fields fields(index, "index", json);
  if (const std::string format = fields.text("format"); format != kFormat) {
    refuse(index, fmt::format("format \"{}\"", format), fmt::format("\"{}\"", kFormat));
  }
  const auto check = [&](const char* key, std::uint64_t known) {
    if (const std::uint64_t version = fields.number(key); version != known) {
      refuse(index, fmt::format("{} {}", key, version), fmt::format("{}, the one that this reader knows", known));
    }
  };
  check("format_version", kFormatVersion);
  check("contract_version", kContractVersion);
  fields.number("generator_version");
  pack.name = fields.text("pack");
  const Json& described = fields.object("flags");
  for (const Json& entry : fields.list("cases")) {
    pack.entries.push_back(read_entry(index, pack.entries.size(), entry));
    for (const std::string& flag : pack.entries.back().flags) {
      if (!described.contains(flag))
        refuse(index, fmt::format("flag \"{}\" of case {}", flag, pack.entries.size() - 1),
               "flags that the index describes");
    }
  }
  fields.no_others();
  if (pack.entries.empty()) refuse(index, "no cases", "at least one");
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

// SPDX-License-Identifier: Apache-2.0
#include "golden/pack_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "golden/flags.h"
#include "golden/format.h"
#include "reference/problem/refusal.h"
#include "reference/problem/unique_names.h"

namespace attest::golden {
namespace {

using Json = nlohmann::ordered_json;

/// Relative, without "..", of letters, digits and . _ - between slashes: nothing outside the folder can be named.
bool is_plain_path(const std::string& path) {
  if (path.empty() || path.front() == '/' || path.back() == '/' || path.find("..") != std::string::npos) return false;
  return std::all_of(path.begin(), path.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-' || c == '/';
  });
}

/// The text as JSON, in which no object may name a key twice.
Json parse_json(const std::string& index, std::string_view text) {
  try {
    return parse_with_unique_names<Json>(text, [&](const std::string& twice) {
      refuse(index, fmt::format("{} twice in one object", in_quotes(twice)), "each name once");
    });
  } catch (const Json::exception&) {
    refuse(index, fmt::format("a text of {} bytes that is not JSON", text.size()), "the index of a pack");
  }
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
        refuse(index_, fmt::format("{} with a field {}", what_, in_quotes(key)), "the fields of the format");
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
    refuse(index, fmt::format("{} with file {}", what, in_quotes(file.path)), "a path within the folder");
  if (file.sha256.size() != 64 || file.sha256.find_first_not_of("0123456789abcdef") != std::string::npos)
    refuse(index, fmt::format("{} with sha256 {}", what, in_quotes(file.sha256)),
           "64 hexadecimal digits, a to f small");
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

}  // namespace

Pack parse_index(const std::string& name, std::string_view text) {
  Pack pack;
  const Json json = parse_json(name, text);
  Fields fields(name, "index", json);
  if (const std::string format = fields.text("format"); format != kFormat) {
    refuse(name, "format " + in_quotes(format), in_quotes(kFormat));
  }
  const auto check = [&](const char* key, std::uint64_t known) {
    if (const std::uint64_t version = fields.number(key); version != known) {
      refuse(name, fmt::format("{} {}", key, version), fmt::format("{}, the one that this reader knows", known));
    }
  };
  check("format_version", kFormatVersion);
  check("contract_version", kContractVersion);
  fields.number("generator_version");
  pack.name = fields.text("pack");
  const Json& described = fields.object("flags");
  for (const auto& [flag, description] : described.items()) {
    if (!description.is_string()) refuse(name, fmt::format("flag {} without a text", in_quotes(flag)), "a string");
  }
  for (const Json& entry : fields.list("cases")) {
    pack.entries.push_back(read_entry(name, pack.entries.size(), entry));
    for (const std::string& flag : pack.entries.back().flags) {
      if (described.contains(flag)) continue;
      refuse(name, fmt::format("flag {} of case {}", in_quotes(flag), pack.entries.size() - 1),
             "flags that the index describes");
    }
  }
  fields.no_others();
  if (pack.entries.empty()) refuse(name, "no cases", "at least one");
  return pack;
}

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

}  // namespace attest::golden

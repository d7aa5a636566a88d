// SPDX-License-Identifier: Apache-2.0
// A pack: a folder with index.json and the files that it lists (docs/golden-format.md).
//
//   const Pack pack = read_pack("golden/packs/smoke");
//   for (const PackEntry& entry : pack.entries) GoldenCase golden = load_case(pack, entry);
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "golden/golden_case.h"

namespace attest::golden {

struct PackFile {
  std::string path;  // within the folder, '/' between names
  std::uint64_t bytes = 0;
  std::string sha256;
};

struct PackEntry {
  PackFile file;     // the case itself
  std::string text;  // case text
  std::string set;   // input elements set after their family
  std::string profile;
  std::vector<std::string> flags;
  std::vector<std::string> exact_tensors;
  std::vector<PackFile> others;  // the ONNX test case, where there is one
};

struct Pack {
  std::string folder;
  std::string name;
  std::vector<PackEntry> entries;
};

/// Reads index.json. Throws InvalidRequest whose field is the index's path.
Pack read_pack(const std::string& folder);

/// The bytes of a file of the pack, which must have the size and the hash that the index states.
std::vector<std::byte> load_file(const Pack& pack, const PackFile& file);
/// The case of an entry, which must be the one that the index states.
GoldenCase load_case(const Pack& pack, const PackEntry& entry);
/// A case file by itself.
GoldenCase load_case(const std::string& path);

/// A file to be written.
struct NewFile {
  std::string path;
  std::vector<std::byte> bytes;
};

/// Files of a case, its own first, named after its case text.
struct NewCase {
  GoldenCase golden;
  std::vector<NewFile> files;
};

/// The name of a case's file, without its ending: readable, and unique by a hash of the text.
std::string case_name(const GoldenCase& golden);

/// Writes a pack into a folder that does not exist yet or is empty. Equal cases give equal bytes.
void write_pack(const std::string& folder, const std::string& name, const std::vector<NewCase>& cases);

}  // namespace attest::golden

// SPDX-License-Identifier: Apache-2.0
#include "golden/lint.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <set>

#include "golden/case_file.h"
#include "golden/case_tensors.h"
#include "golden/corpus.h"
#include "golden/flags.h"
#include "golden/pack.h"
#include "golden/sha256.h"
#include "reference/oracle/visibility.h"
#include "reference/problem/case_text.h"
#include "reference/problem/invalid_request.h"

namespace attest::golden {
namespace {

namespace fs = std::filesystem;

/// What a backend is given, values and words (a mask may be said in several): two cases with the same are one case.
std::string input_hash(const GoldenCase& golden) {
  std::string bytes;
  for (const auto& [key, value] : case_metadata(golden)) {
    if (key != "case" && key != "flags" && key != "set" && key != "exact") bytes += fmt::format("{}={} ", key, value);
  }
  for (const CaseTensor& tensor : case_tensors(golden.problem)) {
    if (tensor.is_bound()) continue;
    const std::vector<double> values = tensor.get(golden);
    bytes += fmt::format("{} {} ", tensor.name, values.size());
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
  }
  return sha256(bytes);
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b, Dtype type) {
  if (a.size() != b.size()) return false;
  for (std::size_t n = 0; n < a.size(); ++n) {
    if (encode(type, a[n], Overflow::ieee) != encode(type, b[n], Overflow::ieee)) return false;
  }
  return true;
}

class Lint {
 public:
  explicit Lint(const std::string& folder) : folder_(folder) {}

  std::vector<std::string> run() {
    Pack pack;
    try {
      pack = read_pack(folder_);
    } catch (const InvalidRequest& error) {
      return {error.what()};
    }
    for (const PackEntry& entry : pack.entries) lint_entry(pack, entry);
    stray_files();
    return std::move(breaches_);
  }

 private:
  template <typename... Arguments>
  void report(const PackEntry& entry, fmt::format_string<Arguments...> text, Arguments&&... arguments) {
    breaches_.push_back(entry.file.path + ": " + fmt::format(text, std::forward<Arguments>(arguments)...));
  }

  void lint_entry(const Pack& pack, const PackEntry& entry) {
    if (!listed_.insert(entry.file.path).second) report(entry, "listed twice");
    if (!texts_.insert(entry.text + "#" + entry.set).second) report(entry, "a second case '{}'", entry.text);
    std::set<std::string> own;
    if (entry.flags.empty()) report(entry, "no flags");
    for (const std::string& flag : entry.flags) {
      if (find_flag(flag) == nullptr) report(entry, "unknown flag {}; {}", flag, known_flags());
      if (!own.insert(flag).second) report(entry, "flag {} twice", flag);
    }
    try {
      for (const PackFile& other : entry.others) {
        listed_.insert(other.path);
        load_file(pack, other);
      }
      lint_case(entry, load_case(pack, entry));
    } catch (const InvalidRequest& error) {
      breaches_.push_back(error.what());
    }
  }

  void lint_case(const PackEntry& entry, const GoldenCase& golden) {
    if (case_name(golden) + ".safetensors" != entry.file.path) {
      report(entry, "not named after its case: {}.safetensors", case_name(golden));
    }
    const auto [same, is_new] = inputs_.try_emplace(input_hash(golden), entry.file.path);
    if (!is_new) report(entry, "the same inputs and answers as {}", same->second);
    lint_inputs(entry, golden);
    lint_masks(entry, golden);
  }

  void lint_inputs(const PackEntry& entry, const GoldenCase& golden) {
    const Problem& p = golden.problem;
    const Inputs inputs = make_golden_inputs(p, golden.set);
    const auto check = [&](const char* name, const std::vector<double>& want, const std::vector<double>& got,
                           Dtype type) {
      if (!same_bits(want, got, type)) report(entry, "{} is not what the case text makes", name);
    };
    check("q", inputs.q.data, golden.inputs.q.data, p.dtype);
    check("k", inputs.k.data, golden.inputs.k.data, p.dtype);
    check("v", inputs.v.data, golden.inputs.v.data, p.dtype);
    check("do", inputs.d_o.data, golden.inputs.d_o.data, p.dtype);
    check("dlse", inputs.d_lse, golden.inputs.d_lse, p.lse_dtype());
    check("bias", inputs.bias.data, golden.inputs.bias.data, p.bias_dtype());
    check("alibi_slopes", inputs.alibi_slopes, golden.inputs.alibi_slopes, Dtype::f32);
    if (inputs.mask.data != golden.inputs.mask.data) report(entry, "mask is not what the case text makes");
    if (inputs.block_mask.data != golden.inputs.block_mask.data)
      report(entry, "block_mask is not what the case text makes");
  }

  /// The slow oracle wrote the masks; this is the other one's opinion.
  void lint_masks(const PackEntry& entry, const GoldenCase& golden) {
    const Problem& p = golden.problem;
    for (std::int64_t b = 0; b < p.batch(); ++b) {
      for (std::int64_t h = 0; h < p.heads_q; ++h) {
        for (std::int64_t i = 0; i < p.seq_q[static_cast<std::size_t>(b)]; ++i) {
          for (std::int64_t j = 0; j < p.seq_k[static_cast<std::size_t>(b)]; ++j) {
            if ((golden.visible.at(b, h, i, j) != 0) != visible(p, golden.inputs, b, h, i, j)) {
              return report(entry, "visible is wrong at [b={} h={} i={} j={}]", b, h, i, j);
            }
            if (p.dropout && (golden.keep.at(b, h, i, j) != 0) != kept(p, b, h, i, j)) {
              return report(entry, "keep is wrong at [b={} h={} i={} j={}]", b, h, i, j);
            }
          }
        }
      }
    }
  }

  void stray_files() {
    for (const auto& item : fs::recursive_directory_iterator(folder_)) {
      const std::string path = fs::relative(item.path(), folder_).generic_string();
      if (item.is_directory() || path == "index.json" || listed_.contains(path)) continue;
      breaches_.push_back(path + ": not in the index");
    }
  }

  std::string folder_;
  std::vector<std::string> breaches_;
  std::set<std::string> listed_;
  std::set<std::string> texts_;
  std::map<std::string, std::string> inputs_;
};

}  // namespace

std::vector<std::string> lint_pack(const std::string& folder) { return Lint(folder).run(); }

}  // namespace attest::golden

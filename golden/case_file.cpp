// SPDX-License-Identifier: Apache-2.0
#include "golden/case_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "golden/case_tensors.h"
#include "golden/exact_bits.h"
#include "golden/format.h"
#include "golden/profile.h"
#include "reference/problem/case_text.h"
#include "reference/problem/invalid_request.h"
#include "reference/problem/layout.h"
#include "reference/problem/refusal.h"

namespace attest::golden {
namespace {

[[noreturn]] void refuse(const SafetensorsFile& file, const std::string& found, const std::string& allowed) {
  attest::refuse(file.name(), found, allowed);
}

const char* causal_name(Causal causal) {
  switch (causal) {
    case Causal::top_left:
      return "top-left";
    case Causal::bottom_right:
      return "bottom-right";
    case Causal::none:
      break;
  }
  return "none";
}

/// What the case text says, in words that a reader needs no parser for.
void add_problem(const Problem& p, Metadata& metadata) {
  metadata["dtype"] = name_of(p.dtype);
  metadata["out_dtype"] = name_of(p.output_dtype());
  metadata["direction"] = p.wants_backward() ? p.wants_forward() ? "both" : "backward" : "forward";
  metadata["heads_q"] = fmt::format("{}", p.heads_q);
  metadata["heads_kv"] = fmt::format("{}", p.heads_kv);
  metadata["scale"] = fmt::format("{:.17g}", p.effective_scale());
  metadata["softcap"] = fmt::format("{:.17g}", p.effective_softcap());
  metadata["causal"] = causal_name(p.causal);
  if (p.window) {
    metadata["window_left"] = fmt::format("{}", p.window->left);
    metadata["window_right"] = fmt::format("{}", p.window->right);
    const Causal own = p.window->alignment == Causal::none ? p.causal : p.window->alignment;
    metadata["window_align"] = causal_name(own == Causal::none ? Causal::bottom_right : own);
  }
  if (p.block) {
    metadata["block_rows"] = fmt::format("{}", p.block->rows);
    metadata["block_cols"] = fmt::format("{}", p.block->cols);
  }
  if (p.page_size > 0) {
    metadata["page_size"] = fmt::format("{}", p.page_size);
    metadata["pages"] = fmt::format("{}", pages_in_pool(p));
  }
  if (p.dropout) {
    metadata["dropout_p"] = fmt::format("{:.17g}", p.effective_dropout());
    metadata["dropout_seed"] = fmt::format("{}", p.dropout->seed);
    metadata["dropout_offset"] = fmt::format("{}", p.dropout->offset);
  }
}

/// The value of a key that must be there.
const std::string& required(const SafetensorsFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) refuse(file, fmt::format("no \"{}\" in __metadata__", key), "a case of a pack");
  return found->second;
}

void check_versions(const SafetensorsFile& file) {
  if (required(file, "format") != kFormat) {
    refuse(file, "format " + in_quotes(required(file, "format")), in_quotes(kFormat));
  }
  const auto check = [&](const char* key, int known) {
    if (required(file, key) == fmt::format("{}", known)) return;
    refuse(file, fmt::format("{} {}", key, in_quotes(required(file, key))),
           fmt::format("\"{}\", the one that this reader knows", known));
  };
  check("format_version", kFormatVersion);
  check("contract_version", kContractVersion);
}

Problem read_problem(const SafetensorsFile& file) {
  try {
    Problem problem = parse_case(required(file, "case"));
    profile_of(problem);  // refuses types that no pack has
    if (!problem.fill.path.empty()) throw InvalidRequest("fill", "a file", "a family: a pack holds its own inputs");
    return problem;
  } catch (const InvalidRequest& error) {
    refuse(file, fmt::format("a case with {} {}", error.field(), in_quotes(error.value())), error.allowed());
  }
}

/// That the words of the metadata are those of the case, and no others.
void check_metadata(const SafetensorsFile& file, const GoldenCase& golden) {
  const Metadata wanted = case_metadata(golden);
  for (const auto& [key, value] : wanted) {
    if (key != "generator_version" && required(file, key) != value) {
      refuse(file, fmt::format("{} {}", key, in_quotes(required(file, key))),
             fmt::format("{}, as the case has it", in_quotes(value)));
    }
  }
  for (const auto& [key, value] : file.metadata()) {
    if (!wanted.contains(key))
      refuse(file, in_quotes(key) + " in __metadata__", "what the format has for this case alone");
  }
}

void read_tensor(const SafetensorsFile& file, const CaseTensor& wanted, GoldenCase& golden) {
  const StoredTensor* found = file.find(wanted.name);
  const std::string needed =
      fmt::format("{} {} [{}] for this case", wanted.name, name_of(wanted.type), fmt::join(wanted.shape, ", "));
  if (found == nullptr) refuse(file, "no tensor " + wanted.name, needed);
  if (found->type != wanted.type || found->shape != wanted.shape) {
    refuse(file, fmt::format("tensor {} of {}", wanted.name, describe(*found)), needed);
  }
  std::vector<double> values = values_of(*found, file.name());
  if (wanted.is_bound()) {
    const auto bad = std::find_if(values.begin(), values.end(), [](double x) { return !(x >= 0); });
    if (bad != values.end()) {
      refuse(file, fmt::format("{} with {} at element {}", wanted.name, *bad, bad - values.begin()),
             "bounds of 0 and more (infinity: none can be stated), never NaN");
    }
  }
  try {
    wanted.set(golden, std::move(values));
  } catch (const std::invalid_argument& error) {
    refuse(file, fmt::format("tensor {} with {}", wanted.name, error.what()), needed);
  }
}

void check_bits(const SafetensorsFile& file, GoldenCase& golden) {
  const std::vector<std::string> names = output_names(golden.problem);
  for (const std::string& name : golden.exact_tensors) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      refuse(file, "\"exact\" with " + in_quotes(name), fmt::format("some of {}", fmt::join(names, " ")));
    }
    const std::vector<double>& exact = output_values(golden.exact, name);
    const std::vector<double>& bounds = output_values(golden.bounds, name);
    const Dtype type = golden.problem.output_dtype();
    for (std::size_t n = 0; n < bounds.size(); ++n) {
      if (is_bit_for_bit(type, exact[n], bounds[n])) continue;
      refuse(file, fmt::format("a bound of {} around {} in the exact {}", bounds[n], exact[n], name),
             fmt::format("bounds within which a single {} lies", name_of(type)));
    }
  }
}

}  // namespace

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

Metadata case_metadata(const GoldenCase& golden) {
  Metadata metadata = {{"format", std::string(kFormat)},
                       {"format_version", fmt::format("{}", kFormatVersion)},
                       {"contract_version", fmt::format("{}", kContractVersion)},
                       {"generator_version", fmt::format("{}", kGeneratorVersion)},
                       {"case", print_case(golden.problem)},
                       {"profile", golden.profile},
                       {"flags", fmt::format("{}", fmt::join(golden.flags, " "))}};
  if (!golden.set.empty()) metadata["set"] = golden.set;
  if (!golden.exact_tensors.empty()) metadata["exact"] = fmt::format("{}", fmt::join(golden.exact_tensors, " "));
  add_problem(golden.problem, metadata);
  return metadata;
}

std::vector<std::byte> write_case(const GoldenCase& golden) {
  const std::vector<CaseTensor> list = case_tensors(golden.problem);
  std::vector<std::vector<std::byte>> data(list.size());  // what the StoredTensors point at
  std::vector<StoredTensor> tensors;
  for (std::size_t n = 0; n < list.size(); ++n) {
    const std::vector<double> values = list[n].get(golden);
    const std::size_t size = bytes_of(list[n].type);
    data[n].resize(values.size() * size);
    if (list[n].type <= StoredType::f8e5m2) {
      store_all(static_cast<Dtype>(list[n].type), values, data[n].data());
    } else {
      for (std::size_t e = 0; e < values.size(); ++e) {
        const auto integer = static_cast<std::uint32_t>(values[e]);
        for (std::size_t b = 0; b < size; ++b) data[n][e * size + b] = static_cast<std::byte>(integer >> (8 * b));
      }
    }
    tensors.push_back({list[n].name, list[n].type, list[n].shape, data[n]});
  }
  return serialise(std::move(tensors), case_metadata(golden));
}

GoldenCase read_case(const SafetensorsFile& file) {
  check_versions(file);
  GoldenCase golden;
  golden.problem = read_problem(file);
  golden.profile = required(file, "profile");
  golden.flags = words_of(required(file, "flags"));
  if (file.metadata().contains("set")) golden.set = required(file, "set");
  if (file.metadata().contains("exact")) golden.exact_tensors = words_of(required(file, "exact"));
  if (golden.profile != profile_of(golden.problem).name) {
    refuse(file, "profile " + in_quotes(golden.profile),
           fmt::format("\"{}\" for {}", profile_of(golden.problem).name, name_of(golden.problem.dtype)));
  }
  check_metadata(file, golden);
  const std::vector<CaseTensor> list = case_tensors(golden.problem);
  for (const CaseTensor& wanted : list) read_tensor(file, wanted, golden);
  for (const StoredTensor& tensor : file.tensors()) {
    const auto known = [&](const CaseTensor& wanted) { return wanted.name == tensor.name; };
    if (std::none_of(list.begin(), list.end(), known)) {
      refuse(file, "tensor " + in_quotes(tensor.name), "the tensors of this case alone");
    }
  }
  check_bits(file, golden);
  return golden;
}

}  // namespace attest::golden

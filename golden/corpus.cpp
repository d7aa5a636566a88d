// SPDX-License-Identifier: Apache-2.0
#include "golden/corpus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "golden/case_file.h"
#include "golden/flags.h"
#include "reference/problem/case_text.h"
#include "reference/problem/invalid_request.h"

namespace attest::golden {
namespace {

constexpr const char* kSetForm =
    "q|k|v|do[TOKEN,HEAD,COLUMN]=VALUE within the tensor, VALUE nan, inf, -inf or a number";

/// The rest of "# key: rest", if the line is one.
bool directive(std::string_view line, std::string_view key, std::string& rest) {
  const std::string start = fmt::format("# {}:", key);
  if (!line.starts_with(start)) return false;
  rest = line.substr(start.size());
  return true;
}

struct Element {
  Values* values;
  std::array<std::int64_t, 3> at;  // token, head, column
  double value;
};

Element parse_element(const std::string& word, Inputs& inputs) {
  const auto wrong = [&]() -> Element { throw InvalidRequest("set", fmt::format("'{}'", word), kSetForm); };
  const std::size_t open = word.find('['), close = word.find("]=");
  if (open == std::string::npos || close == std::string::npos || close < open) return wrong();
  const std::string name = word.substr(0, open);
  Element element{name == "q" ? &inputs.q : name == "k" ? &inputs.k : name == "v" ? &inputs.v : &inputs.d_o, {}, 0};
  if (name != "q" && name != "k" && name != "v" && name != "do") return wrong();
  const char* next = word.data() + open + 1;
  const std::array<std::int64_t, 3> extents = {element.values->tokens, element.values->heads, element.values->width};
  for (std::size_t n = 0; n < 3; ++n) {
    const auto [end, error] = std::from_chars(next, word.data() + close, element.at[n]);
    if (error != std::errc{} || *end != (n < 2 ? ',' : ']')) return wrong();
    if (element.at[n] < 0 || element.at[n] >= extents[n]) return wrong();
    next = end + 1;
  }
  const char* last = word.data() + word.size();
  const auto [end, error] = std::from_chars(word.data() + close + 2, last, element.value);  // takes nan and inf too
  if (error != std::errc{} || end != last) return wrong();
  return element;
}

void check_flags(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (find_flag(name) == nullptr) throw InvalidRequest("flags", name, known_flags());
  }
}

}  // namespace

Inputs make_golden_inputs(const Problem& problem, const std::string& set) {
  Inputs inputs = make_inputs(problem);
  for (const std::string& word : words_of(set)) {
    const Element element = parse_element(word, inputs);
    const double stored = round_to(problem.dtype, element.value, Overflow::ieee);
    if (stored != element.value && !std::isnan(element.value)) {
      throw InvalidRequest("set", fmt::format("'{}'", word),
                           fmt::format("values that {} holds", name_of(problem.dtype)));
    }
    element.values->at(element.at[0], element.at[1], element.at[2]) = element.value;
  }
  return inputs;
}

std::vector<GoldenRequest> read_golden_corpus(const std::string& path) {
  std::ifstream file(path);
  if (!file || std::filesystem::is_directory(path)) {
    throw InvalidRequest("corpus", fmt::format("'{}'", path),
                         fmt::format("a readable text file ({})", file ? "it is a folder" : std::strerror(errno)));
  }
  std::vector<GoldenRequest> requests;
  GoldenRequest next;
  std::string line, rest;
  for (int number = 1; std::getline(file, line); ++number) {
    next.where = fmt::format("{}:{}", path, number);
    try {
      if (directive(line, "flags", rest)) {
        next.flags = words_of(rest);
        check_flags(next.flags);
      } else if (directive(line, "exact", rest)) {
        next.exact_tensors = words_of(rest);
      } else if (directive(line, "set", rest)) {
        next.set = fmt::format("{}", fmt::join(words_of(rest), " "));
      } else {
        const std::string text = line.substr(0, line.find('#'));
        if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
        next.problem = parse_case(text);
        if (next.flags.empty()) throw InvalidRequest("flags", "none", "a line '# flags: NAME...' above the case");
        requests.push_back(next);
        next.set.clear();
      }
    } catch (const InvalidRequest& error) {
      throw InvalidRequest(fmt::format("{}: {}", next.where, error.field()), error.value(), error.allowed());
    }
  }
  if (requests.empty()) throw InvalidRequest("corpus", fmt::format("'{}'", path), "at least one case in the file");
  return requests;
}

}  // namespace attest::golden

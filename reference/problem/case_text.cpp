// SPDX-License-Identifier: Apache-2.0
// Each field of the case text is one row of `kFields`: how it is read, how it is printed, its help.
#include "reference/problem/case_text.h"

#include <cctype>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "reference/problem/case_text_fields.h"
#include "reference/problem/invalid_request.h"

namespace attest {
namespace {

constexpr std::size_t kMaxCaseText = 1 << 20;

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  std::size_t at = 0;
  while (at < text.size()) {
    while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at])) != 0) ++at;
    const std::size_t start = at;
    while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at])) == 0) ++at;
    if (at > start) words.push_back(text.substr(start, at - start));
  }
  return words;
}

std::string all_field_names() {
  std::vector<std::string_view> names;
  for (const CaseField& field : case_fields()) names.push_back(field.name);
  return fmt::format("{}", fmt::join(names, " "));
}

const CaseField* find_field(std::string_view name) {
  for (const CaseField& field : case_fields()) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

/// A stated batch repeats single lengths and must agree with lists.
void apply_batch(CaseDraft& draft) {
  Problem& p = draft.problem;
  if (!draft.batch) {
    // A single length beside a list stands for every sequence of it.
    if (p.seq_q.size() == 1 && p.seq_k.size() > 1) p.seq_q.assign(p.seq_k.size(), p.seq_q.front());
    if (p.seq_k.size() == 1 && p.seq_q.size() > 1) p.seq_k.assign(p.seq_q.size(), p.seq_k.front());
    return;
  }
  const auto repeat = [&](const char* field, std::vector<std::int64_t>& lengths) {
    const auto batch = static_cast<std::size_t>(*draft.batch);
    if (lengths.size() == 1) {
      lengths.assign(batch, lengths.front());
    } else if (lengths.size() != batch) {
      throw InvalidRequest(field, fmt::format("{} lengths", lengths.size()),
                           fmt::format("one length, or {} as batch says", batch));
    }
  };
  repeat("q", p.seq_q);
  repeat("k", p.seq_k);
}

}  // namespace

Problem parse_case(std::string_view text) {
  if (text.size() > kMaxCaseText) {
    throw InvalidRequest("case", fmt::format("{} characters", text.size()), fmt::format("at most {}", kMaxCaseText));
  }
  CaseDraft draft;
  std::set<std::string_view> seen;
  for (const std::string_view word : split_words(text)) {
    const std::size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    const CaseField* field = find_field(name);
    if (equals == std::string_view::npos || field == nullptr) {
      throw InvalidRequest("case", fmt::format("'{}'", word), "FIELD=VALUE with a field of: " + all_field_names());
    }
    if (!seen.insert(name).second) throw InvalidRequest(std::string(name), "it twice", "each field at most once");
    field->parse(draft, word.substr(equals + 1));
  }
  // A layout may stand after the offsets and strides that need it, so these are settled last.
  settle_offsets(draft);
  apply_batch(draft);
  settle_strides(draft);
  validate(draft.problem);
  return draft.problem;
}

std::string print_case(const Problem& problem) {
  static const Problem defaults;
  std::string text;
  for (const CaseField& field : case_fields()) {
    if (field.print == nullptr) continue;
    const std::string value = field.print(problem);
    if (value.empty() || value == field.print(defaults)) continue;
    if (!text.empty()) text += ' ';
    text += fmt::format("{}={}", field.name, value);
  }
  return text;
}

std::string case_text_help() {
  std::string help;
  for (const CaseField& field : case_fields()) {
    help += fmt::format("  {:<44} {}\n", fmt::format("{}={}", field.name, field.form), field.meaning);
  }
  return help;
}

}  // namespace attest

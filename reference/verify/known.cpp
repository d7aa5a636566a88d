// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/known.h"

#include <fnmatch.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "reference/problem/case_text.h"
#include "reference/problem/invalid_request.h"
#include "reference/verify/shrink.h"

namespace attest {
namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

bool matches(const std::string& pattern, const std::string& text) { return fnmatch(pattern.c_str(), text.c_str(), 0) == 0; }

bool names_case(const KnownFailure& known, const std::vector<std::string>& words) {
  return std::ranges::all_of(known.pattern, [&](const std::string& pattern) {
    return std::ranges::any_of(words, [&](const std::string& word) { return matches(pattern, word); });
  });
}

}  // namespace

std::vector<KnownFailure> read_known(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw InvalidRequest("known", fmt::format("'{}'", path), "a readable text file");
  std::vector<KnownFailure> known;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const std::size_t first = line.find('|');
    const std::size_t second = first == std::string::npos ? first : line.find('|', first + 1);
    KnownFailure entry;
    if (second != std::string::npos) {
      entry = {words_of(line.substr(0, first)), trimmed(line.substr(first + 1, second - first - 1)), trimmed(line.substr(second + 1))};
    }
    if (entry.failure.empty() || entry.issue.empty()) {
      throw InvalidRequest(fmt::format("{}:{}", path, number), fmt::format("'{}'", line), "CASE-PATTERN | FAILURE | ISSUE");
    }
    known.push_back(std::move(entry));
  }
  return known;
}

void apply_known(const std::vector<KnownFailure>& known, Verdict& verdict) {
  const std::vector<std::string> words = words_of(print_case(verdict.problem));
  const std::vector<std::string> failures = failures_of(verdict);
  if (verdict.state == State::unsupported) return;
  std::vector<std::string> issues;
  for (const std::string& failure : failures) {
    const auto found = std::ranges::find_if(known, [&](const KnownFailure& k) { return matches(k.failure, failure) && names_case(k, words); });
    if (found == known.end()) return;
    if (std::ranges::find(issues, found->issue) == issues.end()) issues.push_back(found->issue);
  }
  if (!failures.empty()) {
    verdict.state = State::waived;
    verdict.reason = "known:";
    for (const std::string& issue : issues) verdict.reason += " issue " + issue;
    return;
  }
  for (const KnownFailure& k : known) {
    if (!names_case(k, words)) continue;
    verdict.state = State::fail;
    verdict.findings.push_back({"known", "", fmt::format("passes, although issue {} says that it fails ({})", k.issue, k.failure)});
    return;
  }
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/corpus.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "reference/problem/case_text.h"
#include "reference/problem/invalid_request.h"

namespace attest {

std::vector<Problem> read_corpus(const std::string& path) {
  std::ifstream file(path);
  if (!file || std::filesystem::is_directory(path)) {
    throw InvalidRequest("corpus", fmt::format("'{}'", path),
                         fmt::format("a readable text file ({})", file ? "it is a folder" : std::strerror(errno)));
  }
  std::vector<Problem> problems;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      problems.push_back(parse_case(line));
    } catch (const InvalidRequest& error) {
      throw InvalidRequest(fmt::format("{}:{}: {}", path, number, error.field()), error.value(), error.allowed());
    }
  }
  if (problems.empty()) throw InvalidRequest("corpus", fmt::format("'{}'", path), "at least one case in the file");
  return problems;
}

void add_to_corpus(const std::string& path, const Problem& problem, const std::string& comment) {
  const std::string text = print_case(problem);
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line == text) return;
  }
  std::ofstream out(path, std::ios::app);
  out << "# " << comment << '\n' << text << '\n' << std::flush;
  if (!out) throw InvalidRequest("failures", fmt::format("'{}'", path), "a file that can be written");
}

}  // namespace attest

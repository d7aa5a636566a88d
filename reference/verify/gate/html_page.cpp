// SPDX-License-Identifier: Apache-2.0
// The page is report_page.html with the data put into it. Texts of cases, which repeat the same few fields over and over,
// go in as numbers of a table of fields.
#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "reference/problem/case_text.h"
#include "reference/verify/gate/gate_result.h"
#include "reference/verify/gate/report_page.h"
#include "reference/verify/report.h"

namespace attest {
namespace {

constexpr std::size_t kText = 4000;  // bytes of the description of one of the worst cases
constexpr std::size_t kReason = 300;

/// Three digits are enough to look at; -1 stands for infinity, which JSON lacks.
nlohmann::json rounded(double score) {
  if (!std::isfinite(score)) return -1;
  return nlohmann::json::parse(fmt::format("{:.3g}", score));
}

class Numbered {
 public:
  std::size_t operator()(const std::string& text) {
    const auto [at, is_new] = numbers_.try_emplace(text, list_.size());
    if (is_new) list_.push_back(text);
    return at->second;
  }
  const std::vector<std::string>& list() const { return list_; }

 private:
  std::map<std::string, std::size_t> numbers_;
  std::vector<std::string> list_;
};

nlohmann::json worst_json(const WorstCase& worst) {
  nlohmann::json maps = nlohmann::json::array();
  for (const ErrorMap& map : worst.maps) {
    nlohmann::json scores = nlohmann::json::array();
    for (const double score : map.scores) scores.push_back(rounded(score));
    maps.push_back({{"tensor", map.tensor}, {"heads", map.heads}, {"rows", map.rows}, {"per", map.rows_per_cell}, {"cells", map.cells}, {"scores", scores}});
  }
  return {{"state", name_of(worst.verdict.state)}, {"kernel", worst.verdict.kernel}, {"score", rounded(worst.verdict.score())},
          {"case", print_case(worst.verdict.problem)}, {"text", describe(worst.verdict).substr(0, kText)}, {"maps", maps}};
}

/// Nothing in a script element may look like its end.
std::string in_script(std::string text) {
  std::string out;
  for (const char c : text) out += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return out;
}

}  // namespace

std::string html_page(const GateResult& result) {
  Numbered fields, kernels, requests, reasons;
  nlohmann::json rows = nlohmann::json::array();
  for (const Verdict& verdict : result.verdicts) {
    std::string numbers;
    std::istringstream words(print_case(verdict.problem));
    for (std::string word; words >> word;) {
      if (!numbers.empty()) numbers += ' ';
      numbers += std::to_string(fields(word));
    }
    std::string reason = verdict.kind.empty() ? verdict.reason : verdict.kind + ": " + verdict.reason;
    if (reason.empty() && !verdict.findings.empty()) reason = verdict.findings[0].check + ": " + verdict.findings[0].message;
    const std::size_t kernel = kernels(verdict.kernel);
    requests(verdict.request);
    const int directions = (verdict.problem.wants_forward() ? 1 : 0) + (verdict.problem.wants_backward() ? 2 : 0);
    rows.push_back({static_cast<int>(verdict.state), kernel, directions, rounded(verdict.score()), numbers, reasons(reason.substr(0, kReason))});
  }
  nlohmann::json worst = nlohmann::json::array();
  for (const WorstCase& each : result.worst) worst.push_back(worst_json(each));
  nlohmann::json environment = nlohmann::json::array();
  for (const auto& [name, value] : result.environment) environment.push_back({name, value});
  const nlohmann::json data = {{"title", result.title}, {"environment", environment}, {"notes", result.notes},
                               {"fields", fields.list()}, {"kernels", kernels.list()}, {"requests", requests.list()},
                               {"reasons", reasons.list()}, {"rows", rows}, {"worst", worst}};
  std::string page = kReportPage;
  const std::string place = "%DATA%";
  page.replace(page.find(place), place.size(), in_script(data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  return page;
}

}  // namespace attest

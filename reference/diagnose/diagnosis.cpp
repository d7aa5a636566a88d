// SPDX-License-Identifier: Apache-2.0
#include "reference/diagnose/diagnosis.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "reference/diagnose/capture.h"
#include "reference/diagnose/explain.h"
#include "reference/diagnose/stages.h"

namespace attest::diagnose {
namespace {

constexpr std::size_t kNamedTogether = 4;

std::string_view name_of(Level level) {
  switch (level) {
    case Level::ok: return "ok";
    case Level::note: return "note";
    case Level::warning: return "warning";
    case Level::fault: return "FAULT";
  }
  return "";
}

std::string list_fits(const Fit& fit) {
  std::string text;
  for (const TensorFit& tensor : fit.tensors) {
    if (tensor.total > 0) text += fmt::format("{}{} of {} elements of {}", text.empty() ? "" : ", ", tensor.explained, tensor.total, tensor.tensor);
  }
  return text;
}

std::string count_of(std::size_t some, std::int64_t all, const char* what) {
  return static_cast<std::int64_t>(some) < all ? fmt::format("{} of {} {}", some, all, what) : fmt::format("all {} {}", all, what);
}

/// What was compared: `rows` rows, and `heads`, of all that there are.
std::string sampled(const Explanation& x, std::size_t rows, std::span<const HeadAt> heads) {
  std::string text = count_of(rows, x.rows, "rows");
  const bool some = !heads.empty() && !heads.front().keys.empty();
  if (x.heads > 0) text += fmt::format(", {}{}", some ? fmt::format("{} keys of each of ", heads.front().keys.size()) : "", count_of(heads.size(), x.heads, "key/value heads"));
  if (x.bias_rows > 0) text += ", " + count_of(x.sample.bias_rows.size(), x.bias_rows, "rows of dbias");
  return text;
}

/// On what the readings were ranked.
std::string ranked(const Explanation& x) { return sampled(x, x.sample.rows.size(), x.sample.heads); }

/// On what the contract was judged.
std::string judged(const Explanation& x) {
  std::vector<HeadAt> heads;
  for (const auto& head : x.heads_judged) heads.push_back(head.at);
  return sampled(x, x.rows_judged.size(), heads);
}

void add_values(const Explanation& x, Lines& lines) {
  if (x.contract.tensors.empty()) {
    lines.push_back({"values", Level::note, "there are no outputs to compare", ""});
    return;
  }
  if (x.as_contracted()) {
    lines.push_back({"values", Level::ok, fmt::format("as the contract has them, within what the assumed arithmetic may err ({}; {})", list_fits(x.contract), judged(x)), ""});
    return;
  }
  const std::vector<Candidate> causes = x.causes();
  lines.push_back({"values", Level::fault, fmt::format("not the contract's: {} are within their bounds ({})", list_fits(x.contract), judged(x)), ""});
  if (causes.empty()) {
    lines.push_back({"values", Level::note, fmt::format("none of {} readings explains them{} ({})", x.hypotheses.size(), x.pairs_tried ? ", nor a pair" : "", ranked(x)), "see where the errors lie"});
    if (const Candidate& best = x.ranking.front(); x.nearest_helps()) {
      lines.push_back({"values", Level::note, fmt::format("the nearest is {} [{}, {}]: it explains {}, and what it leaves is {:.2g} times its bound off (root mean square; the contract's reading {:.2g})", x.says(best), x.name_of(best), name_of(best.scope), list_fits(best.fit), std::sqrt(best.fit.misfit()), std::sqrt(x.contract_on_sample.misfit())), x.hypotheses[best.changes.front()].fix});
    }
    return;
  }
  for (std::size_t n = 0; n < std::min(causes.size(), kNamedTogether); ++n) {
    const Candidate& cause = causes[n];
    std::string fix;
    for (const std::size_t change : cause.changes) fix += (fix.empty() ? "" : "; ") + x.hypotheses[change].fix;
    lines.push_back({"values", Level::fault, n == 0 ? fmt::format("what was computed is {} [{}, {}]: it explains {} ({})", x.says(cause), x.name_of(cause), name_of(cause.scope), list_fits(cause.fit), ranked(x))
                                                     : fmt::format("which here gives the same as {} [{}]", x.says(cause), x.name_of(cause)), fix});
  }
  for (const Candidate& other : x.ranking) {
    if (!other.fit.explained() || !other.fit.explains_more_than(x.contract_on_sample) || other.fit.misfit() <= causes.back().fit.misfit() * 1.01) continue;
    const bool named = std::any_of(causes.begin(), causes.end(), [&](const Candidate& c) { return c.changes == other.changes; });
    if (named) continue;
    lines.push_back({"values", Level::note, fmt::format("also within the bounds, but {:.2g} times as far off: {} [{}]", std::sqrt(other.fit.misfit() / std::max(causes.front().fit.misfit(), 1e-30)), x.says(other), x.name_of(other)), ""});
    break;
  }
}

}  // namespace

void diagnose_outputs(const Evidence& evidence, Diagnosis& diagnosis) {
  if (!evidence.has_forward() && !evidence.has_gradients()) return;
  trace_non_finite_outputs(evidence, diagnosis.lines);
  const Explanation explanation = explain(evidence);
  add_values(explanation, diagnosis.lines);
  locate_errors(evidence, explanation, diagnosis.lines);
  diagnosis.wrong |= std::any_of(diagnosis.lines.begin(), diagnosis.lines.end(), [](const Line& line) { return line.level == Level::fault; });
}

void diagnose_evidence(const Evidence& evidence, Diagnosis& diagnosis) {
  check_coverage(evidence, diagnosis.lines);
  check_non_finite_inputs(evidence, diagnosis.lines);
  check_scores(evidence, diagnosis.lines);
  check_expected_bound(evidence, diagnosis.lines);
  diagnose_outputs(evidence, diagnosis);
  diagnosis.wrong |= std::any_of(diagnosis.lines.begin(), diagnosis.lines.end(), [](const Line& line) { return line.level == Level::fault; });
}

Diagnosis diagnose_capture(const std::string& path, const std::string& numerics) {
  const auto start = std::chrono::steady_clock::now();
  Diagnosis diagnosis;
  const Capture capture = read_capture(path, numerics, diagnosis.lines);
  const bool offsets = std::any_of(diagnosis.lines.begin(), diagnosis.lines.end(), [](const Line& line) { return line.stage == "offsets"; });
  if (capture.usable && !offsets) diagnosis.lines.push_back({"offsets", Level::ok, "lengths and offsets hold", ""});
  if (capture.usable) {
    diagnose_evidence(capture.evidence, diagnosis);
  } else {
    diagnosis.lines.push_back({"contract", Level::note, "the other stages need a call that holds together; nothing more was looked at", ""});
    diagnosis.wrong = true;
  }
  diagnosis.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return diagnosis;
}

std::string print(const Diagnosis& diagnosis) {
  std::string text, stage;
  for (const Line& line : diagnosis.lines) {
    text += fmt::format("{:<11} {:<8} {}\n", line.stage == stage ? "" : line.stage, name_of(line.level), line.what);
    if (!line.fix.empty()) text += fmt::format("{:<20} -> {}\n", "", line.fix);
    stage = line.stage;
  }
  return text;
}

std::string json(const Diagnosis& diagnosis) {
  nlohmann::json lines = nlohmann::json::array();
  for (const Line& line : diagnosis.lines) {
    lines.push_back({{"stage", line.stage}, {"level", line.level == Level::fault ? "fault" : std::string(name_of(line.level))}, {"what", line.what}, {"fix", line.fix}});
  }
  const nlohmann::json all = {{"wrong", diagnosis.wrong}, {"lines", lines}};
  return all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace attest::diagnose

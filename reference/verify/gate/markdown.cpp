// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "reference/problem/case_text.h"
#include "reference/verify/gate/gate_result.h"
#include "reference/verify/report.h"

namespace attest {
namespace {

constexpr std::size_t kShownCases = 20;
constexpr std::size_t kShownText = 3000;  // bytes of one of them
constexpr std::size_t kAnnotations = 10;

bool is_bad(const Verdict& verdict) {
  return verdict.state == State::fail || verdict.state == State::untrusted || verdict.state == State::error;
}

/// A code block that no text can end: the kernel may have printed anything.
std::string code_block(std::string text) {
  if (text.size() > kShownText) text = text.substr(0, kShownText) + "\n...\n";
  std::string fence = "```";
  while (text.find(fence) != std::string::npos) fence += '`';
  return fence + "text\n" + text + (text.ends_with('\n') ? "" : "\n") + fence + "\n";
}

std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '`' || c == '<' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

/// As workflow commands want it; a property also ends at a colon or a comma.
std::string command_text(std::string_view text, bool property) {
  std::string out;
  for (const char c : text) {
    if (c == '%') out += "%25";
    else if (c == '\r') out += "%0D";
    else if (c == '\n') out += "%0A";
    else if (property && c == ':') out += "%3A";
    else if (property && c == ',') out += "%2C";
    else out += c;
  }
  return out;
}

std::string what_happened(const Verdict& verdict) {
  if (!verdict.reason.empty()) return verdict.reason;
  if (!verdict.findings.empty()) return verdict.findings[0].message;
  const TensorVerdict* worst = verdict.worst_tensor();
  if (worst == nullptr) return "";
  return fmt::format("{}: {} of {} elements off, score {:.3g}", worst->tensor, worst->wrong, worst->total, worst->score);
}

std::string state_of(const Verdict& verdict) {
  return std::string(name_of(verdict.state)) + (verdict.kind.empty() ? "" : " (" + verdict.kind + ")");
}

}  // namespace

std::string markdown_summary(const GateResult& result) {
  std::map<std::string, std::map<State, std::int64_t>> counts;
  std::map<std::string, double> scores;
  std::size_t bad = 0;
  for (const Verdict& verdict : result.verdicts) {
    counts[verdict.kernel][verdict.state] += 1;
    scores[verdict.kernel] = std::max(scores[verdict.kernel], verdict.score());
    bad += is_bad(verdict);
  }
  std::string text = fmt::format("## Attest: {}\n\n{}\n\n", bad == 0 ? "no fault found" : fmt::format("{} bad cases", bad), cell(result.title));
  text += "| kernel | pass | fail | untrusted | unsupported | error | waived | max score |\n|---|--:|--:|--:|--:|--:|--:|--:|\n";
  for (auto& [kernel, states] : counts) {
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {:.3g} |\n", cell(kernel), states[State::pass], states[State::fail],
                        states[State::untrusted], states[State::unsupported], states[State::error], states[State::waived], scores[kernel]);
  }
  text += "\n";
  for (const std::string& note : result.notes) text += fmt::format("- {}\n", cell(note));
  std::size_t shown = 0;
  for (const Verdict& verdict : result.verdicts) {
    if (!is_bad(verdict)) continue;
    if (shown++ == kShownCases) {
      text += fmt::format("\n{} more are in the report.\n", bad - kShownCases);
      break;
    }
    text += fmt::format("\n<details><summary>{} {}</summary>\n\n", state_of(verdict), cell(what_happened(verdict)));
    text += code_block(describe(verdict)) + "\n</details>\n";
  }
  text += "\n<details><summary>Environment</summary>\n\n| | |\n|---|---|\n";
  for (const auto& [name, value] : result.environment) text += fmt::format("| {} | {} |\n", cell(name), cell(value));
  return text + "\n</details>\n";
}

std::string github_annotations(const GateResult& result) {
  std::string text;
  std::size_t bad = 0;
  for (const Verdict& verdict : result.verdicts) bad += is_bad(verdict);
  std::size_t shown = 0;
  for (const Verdict& verdict : result.verdicts) {
    if (!is_bad(verdict)) continue;
    if (++shown == kAnnotations && bad > kAnnotations) {
      text += fmt::format("::error title=Attest::{} more bad cases; see the report\n", bad - kAnnotations + 1);
      break;
    }
    text += fmt::format("::error title={}::{}\n", command_text(fmt::format("Attest: {} {}", verdict.kernel, state_of(verdict)), true),
                        command_text(fmt::format("{}\n{}", what_happened(verdict), repeat_command(verdict)), false));
  }
  return text;
}

}  // namespace attest

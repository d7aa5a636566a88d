// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/report.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "reference/problem/case_text.h"

namespace attest {
namespace {

constexpr std::array kStates = {State::pass,        State::fail,  State::untrusted,
                                State::unsupported, State::error, State::waived};

bool is_forward(const std::string& tensor) { return tensor == "o" || tensor == "lse"; }
/// A finding of no one tensor counts for both directions.
bool concerns(const Finding& finding, bool forward) { return finding.tensor.empty() || is_forward(finding.tensor) == forward; }

nlohmann::json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

/// " rounding of P 0.002, products 1e-06"
std::string parts_text(const std::vector<BoundPart>& parts) {
  std::string text;
  for (const BoundPart& part : parts) text += fmt::format("{} {} {:.2g}", text.empty() ? "" : ",", part.source, part.alone);
  return text;
}

nlohmann::json tensor_json(const TensorVerdict& tensor) {
  nlohmann::json place = nlohmann::json::object();
  const auto add = [&place](const char* name, std::int64_t value) {
    if (value >= 0) place[name] = value;
  };
  add("b", tensor.worst.b);
  add("h", tensor.worst.h);
  add("i", tensor.worst.i);
  add("d", tensor.worst.d);
  nlohmann::json parts = nlohmann::json::object();
  for (const BoundPart& part : tensor.parts) parts[std::string(part.source)] = number(part.alone);
  return {{"parts", parts}, {"rms", number(tensor.rms)}, {"bias", number(tensor.bias)}, {"warnings", tensor.warnings()},
          {"tensor", tensor.tensor}, {"score", number(tensor.score)}, {"total", tensor.total},
          {"wrong", tensor.wrong},   {"unspecified", tensor.unspecified}, {"at", place},
          {"want", number(tensor.want)}, {"got", number(tensor.got)}, {"diff", number(tensor.diff())},
          {"bound", number(tensor.bound)}, {"cluster", tensor.cluster}};
}

/// Escapes what XML 1.0 does not take; other control characters cannot be written at all.
std::string xml_escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\n': out += "&#10;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    }
  }
  return out;
}

/// The state one direction of a case has, which for a fail is decided by its own tensors.
State direction_state(const Verdict& verdict, bool forward) {
  if (verdict.state != State::fail && verdict.state != State::untrusted) return verdict.state;
  bool fails = false;
  for (const TensorVerdict& tensor : verdict.tensors) {
    if (is_forward(tensor.tensor) != forward) continue;
    fails |= tensor.wrong > 0;
  }
  for (const Finding& finding : verdict.findings) fails |= concerns(finding, forward);
  if (fails) return State::fail;
  return verdict.state == State::untrusted ? State::untrusted : State::pass;
}

}  // namespace

std::string repeat_command(const Verdict& verdict) {
  return fmt::format("attest verify --kernel {} --case '{}'", verdict.request, print_case(verdict.problem));
}

std::string describe(const Verdict& verdict) {
  std::string text = fmt::format("{}{}: kernel {}\n", name_of(verdict.state), verdict.kind.empty() ? "" : " (" + verdict.kind + ")", verdict.kernel);
  text += fmt::format("  repeat   {}\n", repeat_command(verdict));
  if (verdict.smaller) {
    text += fmt::format("  smaller  attest verify --kernel {} --case '{}'\n", verdict.request, print_case(*verdict.smaller));
  }
  if (!verdict.reason.empty()) text += fmt::format("  reason   {}\n", verdict.reason);
  for (const Finding& finding : verdict.findings) text += fmt::format("  {:<8} {}\n", finding.check, finding.message);
  for (const TensorVerdict& tensor : verdict.tensors) {
    if (tensor.wrong == 0) {
      text += fmt::format("  {:<8} ok, score {:.3g}\n", tensor.tensor, tensor.score);
      for (const std::string& warning : tensor.warnings()) text += fmt::format("  {:<8} warning: {}\n", "", warning);
      continue;
    }
    text += fmt::format("  {:<8} {} of {} elements off: {}\n", tensor.tensor, tensor.wrong, tensor.total, tensor.cluster);
    text += fmt::format("  {:<8} worst at {}: want {:.9g}  got {:.9g}  diff {:.3g}  bound {:.3g}  score {:.3g}\n", "",
                        print_place(tensor.worst), tensor.want, tensor.got, tensor.diff(), tensor.bound, tensor.score);
    if (!tensor.parts.empty()) text += fmt::format("  {:<8} of the bound, alone:{}\n", "", parts_text(tensor.parts));
  }
  const Coverage& c = verdict.coverage;
  if (c.uncovered_keys + c.uncovered_mask_edges > 0) {
    text += fmt::format("  {:<8} {} of {} keys ({} of {} at tile edges) and {} of {} mask edges could be lost unseen\n", "coverage",
                        c.uncovered_keys, c.keys, c.uncovered_tile_edges, c.tile_edges, c.uncovered_mask_edges, c.mask_edges);
  }
  return text;
}

std::string json_line(const Verdict& verdict) {
  nlohmann::json line = {{"state", name_of(verdict.state)},
                         {"kernel", verdict.kernel},
                         {"case", print_case(verdict.problem)},
                         {"repeat", repeat_command(verdict)},
                         {"score", number(verdict.score())},
                         {"seconds", verdict.seconds}};
  if (!verdict.reason.empty()) line["reason"] = verdict.reason;
  if (!verdict.kind.empty()) line["kind"] = verdict.kind;
  const Coverage& c = verdict.coverage;
  line["coverage"] = {{"keys", c.keys}, {"uncovered_keys", c.uncovered_keys}, {"tile_edges", c.tile_edges},
                      {"uncovered_tile_edges", c.uncovered_tile_edges}, {"mask_edges", c.mask_edges},
                      {"uncovered_mask_edges", c.uncovered_mask_edges}, {"rows", c.rows}, {"uncovered_rows", c.uncovered_rows}};
  if (verdict.smaller) line["smaller"] = print_case(*verdict.smaller);
  line["tensors"] = nlohmann::json::array();
  for (const TensorVerdict& tensor : verdict.tensors) line["tensors"].push_back(tensor_json(tensor));
  line["findings"] = nlohmann::json::array();
  for (const Finding& finding : verdict.findings) {
    line["findings"].push_back({{"check", finding.check}, {"tensor", finding.tensor}, {"message", finding.message}});
  }
  line["checks"] = nlohmann::json::object();
  for (const CheckRecord& record : verdict.checks) {
    nlohmann::json entry = {{"outcome", name_of(record.outcome)}};
    if (!record.reason.empty()) entry["reason"] = record.reason;
    line["checks"][record.check] = entry;
  }
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string junit_xml(std::span<const Verdict> verdicts) {
  std::vector<std::string> kernels;
  for (const Verdict& verdict : verdicts) {
    if (std::find(kernels.begin(), kernels.end(), verdict.kernel) == kernels.end()) kernels.push_back(verdict.kernel);
  }
  std::string xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"attest\">\n";
  for (const std::string& kernel : kernels) {
    std::string body;
    int tests = 0, failures = 0, errors = 0, skipped = 0;
    double seconds = 0;
    for (const Verdict& verdict : verdicts) {
      if (verdict.kernel != kernel) continue;
      ++tests;
      seconds += verdict.seconds;
      body += fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.6f}\"", xml_escape(kernel),
                          xml_escape(print_case(verdict.problem)), verdict.seconds);
      const std::string details = xml_escape(describe(verdict));
      switch (verdict.state) {
        case State::pass: body += "/>\n"; continue;
        case State::fail:
        case State::untrusted:
          ++failures;
          body += fmt::format("><failure type=\"{}\" message=\"score {:.3g}\">{}</failure>", name_of(verdict.state),
                              verdict.score(), details);
          break;
        case State::error:
          ++errors;
          body += fmt::format("><error type=\"{}\" message=\"{}\">{}</error>", verdict.kind, xml_escape(verdict.reason), details);
          break;
        case State::unsupported:
        case State::waived:
          ++skipped;
          body += fmt::format("><skipped message=\"{}: {}\"/>", name_of(verdict.state), xml_escape(verdict.reason));
          break;
      }
      body += "</testcase>\n";
    }
    xml += fmt::format("  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.6f}\">\n",
                       xml_escape(kernel), tests, failures, errors, skipped, seconds);
    xml += body + "  </testsuite>\n";
  }
  return xml + "</testsuites>\n";
}

void Summary::add(const Verdict& verdict) {
  cases_[verdict.state] += 1;
  if (std::find(order_.begin(), order_.end(), verdict.kernel) == order_.end()) order_.push_back(verdict.kernel);
  const auto count = [&](const char* direction, bool forward) {
    Row& row = rows_[{verdict.kernel, direction}];
    row.states[direction_state(verdict, forward)] += 1;
    for (const TensorVerdict& tensor : verdict.tensors) {
      if (is_forward(tensor.tensor) == forward) row.score = std::max(row.score, tensor.score);
    }
  };
  if (verdict.problem.wants_forward()) count("forward", true);
  if (verdict.problem.wants_backward()) count("backward", false);
}

std::string Summary::table() const {
  std::string text = fmt::format("{:<18} {:<9}", "kernel", "direction");
  for (const State state : kStates) text += fmt::format(" {:>11}", name_of(state));
  text += fmt::format(" {:>10}\n", "max score");
  for (const std::string& kernel : order_) {
    for (const char* direction : {"forward", "backward"}) {
      const auto found = rows_.find({kernel, direction});
      if (found == rows_.end()) continue;
      text += fmt::format("{:<18} {:<9}", kernel, direction);
      for (const State state : kStates) {
        const auto count = found->second.states.find(state);
        text += fmt::format(" {:>11}", count == found->second.states.end() ? 0 : count->second);
      }
      text += fmt::format(" {:>10.3g}\n", found->second.score);
    }
  }
  return text;
}

std::int64_t Summary::count(State state) const {
  const auto found = cases_.find(state);
  return found == cases_.end() ? 0 : found->second;
}

std::int64_t Summary::ran() const {
  return count(State::pass) + count(State::fail) + count(State::untrusted) + count(State::error) + count(State::waived);
}

int Summary::exit_code() const {
  const bool bad = count(State::fail) + count(State::untrusted) + count(State::error) > 0;
  return bad || ran() == 0 ? 1 : 0;
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/shrink.h"

#include <algorithm>
#include <chrono>
#include <exception>

#include "reference/problem/invalid_request.h"
#include "reference/verify/checks/check_unit.h"

namespace attest {
namespace {

bool in_common(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::ranges::any_of(a, [&](const std::string& failure) { return std::ranges::find(b, failure) != b.end(); });
}

}  // namespace

std::vector<std::string> failures_of(const Verdict& verdict) {
  std::vector<std::string> failures;
  if (verdict.state == State::error) failures.push_back(verdict.kind.empty() ? "error" : "error " + verdict.kind);
  if (verdict.state == State::untrusted) failures.emplace_back("untrusted");
  if (verdict.state != State::fail) return failures;
  for (const TensorVerdict& tensor : verdict.tensors) {
    if (tensor.wrong > 0) failures.push_back("value of " + tensor.tensor);
  }
  for (const Finding& finding : verdict.findings) failures.push_back("check " + finding.check);
  return failures;
}

Shrunk shrink(const Kernel& kernel, const Verdict& failing, DeviceMemory& memory, const CheckOptions& check_options,
              const ShrinkOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const auto time_is_up = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > options.seconds;
  };
  const std::vector<std::string> wanted = failures_of(failing);
  Shrunk shrunk;
  shrunk.verdict = failing;
  CheckOptions own = check_options;
  own.work_per_case = 0;
  std::erase_if(own.units, [&](const CheckUnit* unit) {
    return std::ranges::none_of(failing.findings, [&](const Finding& finding) { return finding.check == unit->name; });
  });
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (const Problem& candidate : simpler(shrunk.verdict.problem)) {
      if (shrunk.tries >= options.most_tries || time_is_up()) return shrunk;
      ++shrunk.tries;
      try {
        Verdict verdict = check(kernel, candidate, memory, own);
        if (!in_common(wanted, failures_of(verdict))) continue;
        shrunk.verdict = std::move(verdict);
      } catch (const std::exception&) {
        continue;  // a case that cannot be made is not a smaller failure
      }
      smaller = true;
      break;
    }
  }
  shrunk.finished = true;
  return shrunk;
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/profile.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace attest {
namespace {

nlohmann::json to_json(const Cost& cost) { return {{"seconds", cost.seconds}, {"cpu", cost.cpu}}; }

}  // namespace

void Profile::add(const Verdict& verdict) {
  if (verdict.state == State::unsupported) return;
  cases_ += 1;
  for (const Phase phase : kPhases) cost_[phase].add(verdict.cost[phase]);
  for (const CheckRecord& record : verdict.checks) {
    CheckCost& check = checks_[record.check];
    check.cases += 1;
    check.cost.add(record.cost);
  }
}

void Profile::finish(double seconds, double cpu_seconds, const TransportCost& transport) {
  seconds_ = seconds;
  cpu_seconds_ = cpu_seconds;
  transport_ = transport;
}

std::string Profile::table() const {
  const double n = static_cast<double>(std::max<std::int64_t>(cases_, 1));
  double total = 0;
  for (const Phase phase : kPhases) total += cost_[phase].seconds;
  const double share = total > 0 ? 100 / total : 0;
  std::string text = fmt::format("{}: {} cases in {:.1f} s, {:.1f} a second; {:.1f} ms of processor time a case\n", kernel_, cases_,
                                 seconds_, static_cast<double>(cases_) / std::max(seconds_, 1e-9), 1e3 * cpu_seconds_ / n);
  text += fmt::format("  {:<20} {:>9} {:>9} {:>7} {:>9}\n", "phase", "ms/case", "cpu ms", "share", "cases");
  const auto line = [&](std::string_view name, const Cost& cost, std::int64_t cases) {
    text += fmt::format("  {:<20} {:>9.3f} {:>9.3f} {:>6.1f}% {:>9}\n", name, 1e3 * cost.seconds / n, 1e3 * cost.cpu / n,
                        share * cost.seconds, cases);
  };
  for (const Phase phase : kPhases) line(name_of(phase), cost_[phase], cases_);
  std::vector<std::pair<std::string, CheckCost>> checks(checks_.begin(), checks_.end());
  std::ranges::stable_sort(checks, std::greater{}, [](const auto& check) { return check.second.cost.seconds; });
  for (const auto& [name, check] : checks) line("  " + name, check.cost, check.cases);
  if (transport_.calls > 0) {
    text += fmt::format("  of it, in the kernel {:.3f} ms a case, to and from its process {:.3f} ms in {:.0f} messages\n",
                        1e3 * transport_.kernel_seconds / n, 1e3 * (transport_.seconds - transport_.kernel_seconds) / n,
                        static_cast<double>(transport_.calls) / n);
  }
  return text;
}

std::string Profile::json() const {
  nlohmann::json phases = nlohmann::json::object();
  for (const Phase phase : kPhases) phases[std::string(name_of(phase))] = to_json(cost_[phase]);
  nlohmann::json checks = nlohmann::json::object();
  for (const auto& [name, check] : checks_) {
    checks[name] = to_json(check.cost);
    checks[name]["cases"] = check.cases;
  }
  return nlohmann::json{{"kernel", kernel_},
                        {"cases", cases_},
                        {"seconds", seconds_},
                        {"cpu", cpu_seconds_},
                        {"phases", phases},
                        {"checks", checks},
                        {"kernel_seconds", transport_.kernel_seconds},
                        {"transport_seconds", transport_.seconds - transport_.kernel_seconds},
                        {"transport_messages", transport_.calls}}
      .dump();
}

}  // namespace attest

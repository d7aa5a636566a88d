// SPDX-License-Identifier: Apache-2.0
#include "tools/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

namespace attest::tools {
namespace {

constexpr std::chrono::milliseconds kQuietStart{2000};
constexpr std::chrono::milliseconds kTerminalStep{200};
constexpr std::chrono::milliseconds kPlainStep{10000};

std::string minutes(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

Progress::Progress(std::string title, std::int64_t expected, double seconds)
    : title_(std::move(title)), expected_(expected), seconds_(seconds), terminal_(isatty(STDERR_FILENO) != 0),
      start_(Clock::now()), next_(start_ + kQuietStart) {}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (terminal_ && shown_) fmt::print(stderr, "\r\x1b[K");
  shown_ = false;
}

void Progress::update(std::int64_t done, std::int64_t failed) {
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + (terminal_ ? kTerminalStep : kPlainStep);
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const double share = seconds_ > 0 ? elapsed / seconds_ : static_cast<double>(done) / static_cast<double>(std::max<std::int64_t>(expected_, 1));
  const double left = share > 0 ? elapsed * (1 - share) / share : 0;
  const std::string of = expected_ > 0 && seconds_ <= 0 ? fmt::format(" of {}", expected_) : "";
  const std::string line =
      fmt::format("{}: {}{} cases, {:.0f}%, {:.0f} cases/s, about {} left{}", title_, done, of,
                  100 * std::min(share, 1.0), static_cast<double>(done) / elapsed, minutes(std::max(left, 0.0)),
                  failed > 0 ? fmt::format(", {} failed", failed) : "");
  if (terminal_) {
    fmt::print(stderr, "\r\x1b[K{}", line);
    shown_ = true;
  } else {
    fmt::print(stderr, "{}\n", line);
  }
  std::fflush(stderr);
}

}  // namespace attest::tools

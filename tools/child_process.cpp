// SPDX-License-Identifier: Apache-2.0
#include "tools/child_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

namespace attest::tools {
namespace {

using Clock = std::chrono::steady_clock;

struct Child {
  std::size_t index;
  pid_t pid;
  int pipe;
  Clock::time_point start;
  std::string text;
};

[[noreturn]] void be_child(int pipe, std::size_t index, const std::function<std::string(std::size_t)>& work) {
  std::string text;
  int status = 0;
  try {
    text = work(index);
  } catch (const std::exception& error) {
    text = error.what();
    status = 3;
  }
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = write(pipe, text.data() + at, text.size() - at);
    if (n <= 0) _exit(4);
    at += static_cast<std::size_t>(n);
  }
  _exit(status);  // no destructors of what the parent owns
}

Child start(std::size_t index, const std::function<std::string(std::size_t)>& work) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe for a child process");
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("no child process");
  if (pid == 0) {
    close(ends[0]);
    be_child(ends[1], index, work);
  }
  close(ends[1]);
  return {index, pid, ends[0], Clock::now(), ""};
}

/// Reads what there is; false at the end of the pipe.
bool read_some(Child& child) {
  char buffer[4096];
  const ssize_t n = read(child.pipe, buffer, sizeof buffer);
  if (n > 0) child.text.append(buffer, static_cast<std::size_t>(n));
  return n > 0;
}

ChildAnswer end_of(Child& child, const std::string& killed) {
  int status = 0;
  close(child.pipe);
  waitpid(child.pid, &status, 0);
  if (!killed.empty()) return {"", killed};
  if (WIFSIGNALED(status)) return {"", fmt::format("signal {}", WTERMSIG(status))};
  if (WEXITSTATUS(status) != 0) return {"", child.text.empty() ? "exit" : child.text};
  return {child.text, ""};
}

}  // namespace

void run_children(std::size_t count, int jobs, double seconds, const std::function<std::string(std::size_t)>& work,
                  const std::function<void(std::size_t, const ChildAnswer&)>& done) {
  std::vector<Child> running;
  std::size_t next = 0;
  while (next < count || !running.empty()) {
    while (next < count && running.size() < static_cast<std::size_t>(std::max(1, jobs))) running.push_back(start(next++, work));
    std::vector<pollfd> waits;
    for (const Child& child : running) waits.push_back({child.pipe, POLLIN, 0});
    poll(waits.data(), waits.size(), 200);
    for (std::size_t n = running.size(); n-- > 0;) {
      Child& child = running[n];
      const bool ended = waits[n].revents != 0 && !read_some(child);
      const bool late = std::chrono::duration<double>(Clock::now() - child.start).count() > seconds;
      if (!ended && !late) continue;
      if (late && !ended) kill(child.pid, SIGKILL);
      const std::size_t index = child.index;
      const ChildAnswer answer = end_of(child, late && !ended ? fmt::format("no answer after {:.0f} s", seconds) : "");
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(n));
      done(index, answer);
    }
  }
}

}  // namespace attest::tools

// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/worker/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include <fmt/format.h>

#include "reference/problem/device_memory.h"
#include "reference/problem/invalid_request.h"
#include "reference/verify/worker/process_tree.h"

extern char** environ;

namespace attest {
namespace {

constexpr int kStepMilliseconds = 10;  // between looks at the clock and at the worker's memory
constexpr std::size_t kTail = 400;     // bytes of a worker's output that go into a report

[[noreturn]] void fail_call(const char* call, int error) { throw std::system_error(error, std::generic_category(), call); }

/// Moves a file to a number above those that the worker gets.
int moved_up(int file) {
  const int moved = fcntl(file, F_DUPFD_CLOEXEC, 16);
  close(file);
  return moved;
}

/// The files, the process group and the signals that a worker starts with.
class SpawnSetup {
 public:
  SpawnSetup(int socket, int arena, int output) {
    posix_spawn_file_actions_init(&files_);
    posix_spawn_file_actions_addopen(&files_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files_, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files_, output, STDERR_FILENO);
    posix_spawn_file_actions_adddup2(&files_, socket, kSocketFile);
    posix_spawn_file_actions_adddup2(&files_, arena, kArenaFile);
    posix_spawnattr_init(&attributes_);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setpgroup(&attributes_, 0);
    sigset_t signals;
    sigemptyset(&signals);
    posix_spawnattr_setsigmask(&attributes_, &signals);
    sigfillset(&signals);
    posix_spawnattr_setsigdefault(&attributes_, &signals);
  }
  ~SpawnSetup() {
    posix_spawn_file_actions_destroy(&files_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;

  const posix_spawn_file_actions_t* files() const { return &files_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t files_;
  posix_spawnattr_t attributes_;
};

std::string printable(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = ' ';
  }
  return text;
}

}  // namespace

WorkerProcess::WorkerProcess(std::string request, WorkerLimits limits, std::string executable)
    : request_(std::move(request)), limits_(std::move(limits)), executable_(std::move(executable)) {
  // Processes that a worker leaves behind come to this one, which can then reap them.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

WorkerProcess::~WorkerProcess() { end(); }

void WorkerProcess::start() {
  std::array<int, 2> sockets{};
  std::array<int, 2> pipe{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()) != 0) fail_call("socketpair", errno);
  if (pipe2(pipe.data(), O_CLOEXEC) != 0) fail_call("pipe", errno);
  socket_ = moved_up(sockets[0]);
  const int theirs = moved_up(sockets[1]);
  output_ = moved_up(pipe[0]);
  const int their_output = moved_up(pipe[1]);
  fcntl(output_, F_SETFL, O_NONBLOCK);
  arena_.note().signal = 0;
  arena_.note().stack_overflow = 0;
  const SpawnSetup setup(theirs, arena_.file(), their_output);
  std::string name = "attest";
  std::string command = "worker";
  std::string address = fmt::format("{}", reinterpret_cast<std::uintptr_t>(arena_.base()));
  std::array<char*, 5> arguments = {name.data(), command.data(), request_.data(), address.data(), nullptr};
  const int error = posix_spawn(&process_, executable_.c_str(), setup.files(), setup.attributes(), arguments.data(), environ);
  close(theirs);
  close(their_output);
  if (error != 0) {
    process_ = -1;
    end();
    fail_call("posix_spawn of a worker", error);
  }
  ++generation_;
}

Reply WorkerProcess::call(const Request& request, const std::string& doing) {
  const std::lock_guard lock(mutex_);
  if (process_ < 0) start();
  const Clock::time_point sent = Clock::now();
  const Reply reply = exchange(request, doing);
  calls_ += 1;
  call_seconds_ += std::chrono::duration<double>(Clock::now() - sent).count();
  const std::string first(reply.text[0], strnlen(reply.text[0], sizeof(reply.text[0])));
  switch (reply.ending) {
    case Ending::done: kernel_seconds_ += reply.seconds; return reply;
    case Ending::invalid_request: end(); throw InvalidRequest(first, reply.text[1], reply.text[2]);
    case Ending::exception: fail(FailureKind::exception, fmt::format("{} threw: {}", doing, first));
    case Ending::left_processes: fail(FailureKind::processes, fmt::format("{} left processes of its own behind", doing));
    case Ending::device_error:
      fail(FailureKind::device, fmt::format("{}: {}{}{}", doing, first, reply.text[1][0] == '\0' ? "" : ": ", reply.text[1]));
  }
  return reply;
}

Reply WorkerProcess::exchange(const Request& request, const std::string& doing) {
  printed_ = 0;
  tail_.clear();
  if (send(socket_, &request, sizeof(request), MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(request))) explain_death(doing);
  const Clock::time_point deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limits_.seconds));
  for (;;) {
    std::array<pollfd, 2> files = {pollfd{socket_, POLLIN, 0}, pollfd{output_, POLLIN, 0}};
    poll(files.data(), files.size(), kStepMilliseconds);
    if (files[0].revents != 0) {
      Reply reply;
      const ssize_t got = recv(socket_, &reply, sizeof(reply), MSG_DONTWAIT);
      if (got == static_cast<ssize_t>(sizeof(reply))) return reply;
      explain_death(doing);
    }
    if (!drain_output()) fail(FailureKind::output, fmt::format("{} printed more than {} bytes", doing, limits_.output));
    siginfo_t ended{};
    if (waitid(P_PID, static_cast<id_t>(process_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == process_) explain_death(doing);
    if (const std::size_t memory = own_memory(); memory > limits_.memory) {
      fail(FailureKind::memory, fmt::format("{} took {:.1f} GiB of memory; the limit is {:.1f} GiB", doing,
                                            static_cast<double>(memory) / (1 << 30), static_cast<double>(limits_.memory) / (1 << 30)));
    }
    if (Clock::now() >= deadline) fail(FailureKind::hang, fmt::format("{} did not come back within {:g} s", doing, limits_.seconds));
    if (limits_.cancelled && limits_.cancelled()) fail(FailureKind::cancelled, fmt::format("{} was ended by an interrupt", doing));
  }
}

/// Reads what the worker printed; false where it is more than it may.
bool WorkerProcess::drain_output() {
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t got = read(output_, buffer.data(), buffer.size());
    if (got <= 0) return true;
    printed_ += static_cast<std::size_t>(got);
    tail_.append(buffer.data(), static_cast<std::size_t>(got));
    if (tail_.size() > kTail) tail_.erase(0, tail_.size() - kTail);
    if (printed_ > limits_.output) return false;
  }
}

std::size_t WorkerProcess::own_memory() const {
  std::FILE* file = std::fopen(fmt::format("/proc/{}/statm", process_).c_str(), "re");
  if (file == nullptr) return 0;
  unsigned long size = 0, resident = 0, shared = 0;
  const int read = std::fscanf(file, "%lu %lu %lu", &size, &resident, &shared);
  std::fclose(file);
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return read == 3 && resident > shared ? (resident - shared) * page : 0;
}

void WorkerProcess::fail(FailureKind kind, const std::string& text) {
  drain_output();
  const std::string printed = printable(tail_);
  end();
  throw KernelFailure(kind, printed.empty() || kind == FailureKind::output ? text : fmt::format("{}; it printed: {}", text, printed));
}

void WorkerProcess::explain_death(const std::string& doing) {
  drain_output();
  const DeathNote note = arena_.note();
  const std::string printed = printable(tail_);
  const int status = end();
  const std::string said = printed.empty() ? "" : fmt::format("; it printed: {}", printed);
  if (WIFEXITED(status)) {
    throw KernelFailure(FailureKind::exit, fmt::format("{} ended its process with exit code {}{}", doing, WEXITSTATUS(status), said));
  }
  const int signal = WTERMSIG(status);
  const char* name = sigabbrev_np(signal);
  const std::string named = name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
  if (signal == SIGABRT) throw KernelFailure(FailureKind::abort, fmt::format("{} aborted{}", doing, said));
  if (note.signal == signal && note.stack_overflow != 0) {
    throw KernelFailure(FailureKind::stack_overflow, fmt::format("{} overflowed its stack{}", doing, said));
  }
  const std::string at = note.signal == signal ? fmt::format(" at address {:#x}", static_cast<std::uint64_t>(note.address)) : "";
  throw KernelFailure(FailureKind::crash, fmt::format("{} crashed with {}{}{}", doing, named, at, said));
}

/// Ends the worker and all that it started, and gives its wait status.
int WorkerProcess::end() noexcept {
  int status = 0;
  if (process_ > 0) status = kill_process_tree(process_);
  process_ = -1;
  for (int* file : {&socket_, &output_}) {
    if (*file >= 0) close(*file);
    *file = -1;
  }
  return status;
}

}  // namespace attest

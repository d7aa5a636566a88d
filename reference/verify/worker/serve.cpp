// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/worker/serve.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <thread>

#include "reference/problem/invalid_request.h"
#include "reference/verify/worker/arena.h"
#include "reference/verify/worker/process_tree.h"
#include "reference/verify/worker/protocol.h"

namespace attest {
namespace {

DeathNote* death_note = nullptr;
std::uintptr_t stack_low = 0;
constexpr int kNoOwner = 3;  // exit code where the reply finds nobody
constexpr std::uintptr_t kNearStackEnd = std::uintptr_t{1} << 20;

template <std::size_t N>
void put(char (&field)[N], const std::string& text) {
  const std::size_t length = std::min(text.size(), N - 1);
  std::memcpy(field, text.data(), length);
  field[length] = '\0';
}

/// Leaves word of the signal and lets it have its way.
extern "C" void write_death_note(int number, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  death_note->address = address;
  death_note->stack_overflow = number == SIGSEGV && address + kNearStackEnd > stack_low && address < stack_low + kNearStackEnd;
  death_note->signal = number;
}

void watch_signals() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
    void* low = nullptr;
    std::size_t bytes = 0;
    pthread_attr_getstack(&attributes, &low, &bytes);
    stack_low = reinterpret_cast<std::uintptr_t>(low);
    pthread_attr_destroy(&attributes);
  }
  static std::array<char, 65536> handler_stack;
  stack_t stack{};
  stack.ss_sp = handler_stack.data();
  stack.ss_size = handler_stack.size();
  sigaltstack(&stack, nullptr);
  struct sigaction action{};
  action.sa_sigaction = write_death_note;
  action.sa_flags = static_cast<int>(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND);
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE}) sigaction(number, &action, nullptr);
}

/// Ends this process group when the owner is gone, whatever the kernel is doing.
void watch_owner() {
  std::thread([] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    for (;;) {
      pollfd file{kSocketFile, POLLRDHUP, 0};
      if (poll(&file, 1, -1) > 0) kill(0, SIGKILL);
    }
  }).detach();
}

/// Damage of the heap tends to show at the next use of it; better in the case that did it than in a later one.
void exercise_heap() {
  std::array<void*, 64> blocks{};
  for (std::size_t n = 0; n < blocks.size(); ++n) blocks[n] = std::malloc(16 + 48 * n);
  for (void* block : blocks) std::free(block);
}

class Server {
 public:
  Server(const std::string& request, const WorkerTools& tools) : request_(request), tools_(tools) {}

  int run() {
    for (;;) {
      Request request;
      const ssize_t got = recv(kSocketFile, &request, sizeof(request), 0);
      if (got != static_cast<ssize_t>(sizeof(request))) return 0;
      Reply reply;
      carry_out(request, reply);
      // A copy of this process that a kernel made has nothing to say.
      if (getpid() != self_) _exit(0);
      exercise_heap();
      if (reply.ending == Ending::done && has_children()) reply.ending = Ending::left_processes;
      if (send(kSocketFile, &reply, sizeof(reply), MSG_NOSIGNAL) < 0) return kNoOwner;
    }
  }

 private:
  void carry_out(const Request& request, Reply& reply) {
    try {
      if (kernels_.empty()) kernels_ = tools_.select(request_);
      reply.value = obey(request, reply);
    } catch (const InvalidRequest& error) {
      reply.ending = Ending::invalid_request;
      put(reply.text[0], error.field());
      put(reply.text[1], error.value());
      put(reply.text[2], error.allowed());
    } catch (const DeviceError& error) {
      reply.ending = Ending::device_error;
      put(reply.text[0], error.call());
      put(reply.text[1], error.reason());
    } catch (const std::exception& error) {
      reply.ending = Ending::exception;
      put(reply.text[0], error.what());
    } catch (...) {
      reply.ending = Ending::exception;
      put(reply.text[0], "something that is not a std::exception");
    }
  }

  std::int64_t obey(const Request& request, Reply& reply) {
    const Kernel& kernel = kernels_.at(static_cast<std::size_t>(request.kernel));
    const attest_kernel& table = kernel.table();
    const auto* problem = static_cast<const attest_problem*>(request.at);
    switch (request.order) {
      case Order::describe: return describe(static_cast<KernelFacts*>(request.at), request.bytes);
      case Order::supports: return table.supports(problem, reply.text[0], sizeof(reply.text[0]));
      case Order::numerics: table.numerics(problem, static_cast<attest_numerics*>(request.to)); return 0;
      case Order::workspace: return static_cast<std::int64_t>(table.workspace_bytes(problem, static_cast<std::int32_t>(request.number)));
      case Order::forward: return timed(kernel, table.forward, request, reply);
      case Order::backward: return timed(kernel, table.backward, request, reply);
      case Order::allocate: return reinterpret_cast<std::int64_t>(memory(kernel).allocate(request.bytes));
      case Order::release: memory(kernel).release(request.at); return 0;
      case Order::upload: memory(kernel).upload(request.to, request.at, request.bytes); return 0;
      case Order::download: memory(kernel).download(request.to, request.at, request.bytes); return 0;
      case Order::fill: memory(kernel).fill(request.to, static_cast<std::uint8_t>(request.number), request.bytes); return 0;
      case Order::synchronize: memory(kernel).synchronize(); return 0;
      case Order::device_name: put(reply.text[0], memory(kernel).name()); return 0;
    }
    return 0;
  }

  std::int32_t timed(const Kernel& kernel, std::int32_t (*function)(const attest_call*), const Request& request, Reply& reply) {
    const attest_call* call = prepared(kernel, request);
    const auto start = std::chrono::steady_clock::now();
    const std::int32_t status = function(call);
    if (kernel.on_cuda()) memory(kernel).synchronize();
    reply.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return status;
  }

  const attest_call* prepared(const Kernel& kernel, const Request& request) {
    auto* call = static_cast<attest_call*>(request.at);
    call->stream = kernel.on_cuda() ? memory(kernel).stream() : nullptr;
    return call;
  }

  std::int64_t describe(KernelFacts* facts, std::size_t room) const {
    for (std::size_t n = 0; n < kernels_.size() && n < room; ++n) {
      const attest_kernel& table = kernels_[n].table();
      facts[n] = {};
      put(facts[n].name, table.name);
      put(facts[n].description, table.description);
      put(facts[n].origin, kernels_[n].origin());
      facts[n].device = table.device;
      facts[n].directions = table.directions;
      facts[n].has_workspace = table.workspace_bytes != nullptr;
      facts[n].conventions = table.conventions;
    }
    return static_cast<std::int64_t>(kernels_.size());
  }

  DeviceMemory& memory(const Kernel& kernel) {
    if (memory_ == nullptr) memory_ = tools_.memory_for(kernel);
    return *memory_;
  }

  const std::string& request_;
  const WorkerTools& tools_;
  const pid_t self_ = getpid();
  std::vector<Kernel> kernels_;
  std::unique_ptr<DeviceMemory> memory_;
};

}  // namespace

int serve_kernels(const std::string& request, std::uint64_t arena, const WorkerTools& tools) {
  // Whatever else the owner had open is no business of a kernel's.
  close_range(kArenaFile + 1, ~0U, 0);
  for (const int file : {kSocketFile, kArenaFile}) fcntl(file, F_SETFD, FD_CLOEXEC);
  map_arena(kArenaFile, arena);
  death_note = reinterpret_cast<DeathNote*>(arena);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  watch_signals();
  watch_owner();
  const int code = Server(request, tools).run();
  // Destructors of a kernel's library could hang; nothing here needs them.
  _exit(code);
}

}  // namespace attest

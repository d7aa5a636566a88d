// SPDX-License-Identifier: Apache-2.0
// Kernels that are sound, except on cases with q=13, where each does one thing that no kernel should.
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "reference/models/flash.h"
#include "reference/problem/kernel_abi.h"

namespace {

constexpr std::int64_t kTrigger = 13;

volatile std::uintptr_t nowhere = 16;  // not known to the compiler
volatile bool forever = true;

/// What each does instead of computing; where it comes back, its result says whether to compute as well.
enum class Then { compute, stop };

Then segfault(const attest_call*) {
  *reinterpret_cast<volatile int*>(nowhere) = 1;
  return Then::compute;
}
Then aborts(const attest_call*) { std::abort(); }
Then exits(const attest_call*) { std::exit(0); }
Then loops(const attest_call*) {
  while (forever) {
  }
  return Then::compute;
}
/// Both processes come back.
Then forks(const attest_call*) {
  (void)!fork();
  return Then::compute;
}
/// The child stays, in a session of its own.
Then forks_a_daemon(const attest_call*) {
  if (fork() == 0) {
    setsid();
    for (;;) pause();
  }
  return Then::compute;
}
Then writes_before(const attest_call* call) {
  static_cast<char*>(call->o.data)[-3] = 1;
  return Then::compute;
}
Then writes_after(const attest_call* call) {
  const attest_problem& p = *call->problem;
  static_cast<float*>(call->o.data)[p.batch * p.rows_q * p.heads_q * p.dim_v] = 1;
  return Then::compute;
}
Then frees_ours(const attest_call* call) {
  void* volatile data = call->q.data;
  std::free(data);
  return Then::compute;
}
Then damages_heap(const attest_call*) {
  constexpr std::size_t kBytes = 100000;  // from the end of the heap, whose own record follows
  char* volatile block = static_cast<char*>(std::malloc(kBytes));
  for (std::size_t n = kBytes; n < kBytes + 64; ++n) block[n] = 0x5a;
  std::free(block);
  return Then::compute;
}
Then takes_20_gb(const attest_call*) {
  constexpr std::size_t kStep = std::size_t{1} << 26;
  for (int n = 0; n < 320; ++n) std::memset(std::malloc(kStep), 1, kStep);
  return Then::compute;
}
int deeper(volatile char* above) {
  volatile char frame[4096];
  frame[0] = above[0];
  return forever ? deeper(frame) + frame[0] : 0;
}
Then overflows_stack(const attest_call*) {
  volatile char first = 0;
  return deeper(&first) == 1 ? Then::stop : Then::compute;
}
Then throws(const attest_call*) { throw std::runtime_error("out of ideas"); }
Then throws_a_number(const attest_call*) { throw 7; }
Then writes_inputs(const attest_call* call) {
  static_cast<float*>(call->k.data)[2] = 4;
  return Then::compute;
}
Then writes_nothing(const attest_call*) { return Then::stop; }
Then prints_gigabytes(const attest_call*) {
  static char line[4096];
  std::memset(line, 'x', sizeof(line));
  for (long n = 0; n < 1L << 19; ++n) std::fwrite(line, 1, sizeof(line), stdout);
  return Then::compute;
}
Then closes_files(const attest_call*) {
  for (int file = 0; file < 64; ++file) close(file);
  return Then::compute;
}
Then kills_itself(const attest_call*) {
  raise(SIGTERM);
  return Then::compute;
}
/// Writes nothing in every third call.
Then is_flaky(const attest_call*) {
  static int calls = 0;
  return calls++ % 3 == 1 ? Then::stop : Then::compute;
}
Then nothing(const attest_call*) { return Then::compute; }

template <Then (*Act)(const attest_call*)>
std::int32_t forward(const attest_call* call) {
  if (call->problem->max_q == kTrigger && Act(call) == Then::stop) return ATTEST_OK;
  return attest::kFlashKernel.forward(call);
}

std::int32_t supports_or_crashes(const attest_problem* problem, char* reason, std::size_t bytes) {
  if (problem->max_q == kTrigger) segfault(nullptr);
  return attest::kFlashKernel.supports(problem, reason, bytes);
}

template <Then (*Act)(const attest_call*)>
const attest_kernel* kernel(const char* name) {
  static attest_kernel table = attest::kFlashKernel;
  table.name = name;
  table.directions = ATTEST_FORWARD;
  table.forward = forward<Act>;
  table.backward = nullptr;
  return &table;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) size_t attest_kernels(uint32_t abi_version,
                                                                         const attest_kernel* const** kernels) {
  if (abi_version != ATTEST_ABI_VERSION) return 0;
  static attest_kernel crashes_in_supports = *kernel<nothing>("crashes-in-supports");
  crashes_in_supports.supports = supports_or_crashes;
  static const attest_kernel* const list[] = {
      kernel<segfault>("segfault"), kernel<aborts>("aborts"), kernel<exits>("exits"), kernel<loops>("loops"),
      kernel<forks>("forks"), kernel<forks_a_daemon>("forks-a-daemon"), kernel<writes_before>("writes-before"),
      kernel<writes_after>("writes-after"), kernel<frees_ours>("frees-ours"), kernel<damages_heap>("damages-heap"),
      kernel<takes_20_gb>("takes-20-gb"), kernel<overflows_stack>("overflows-stack"), kernel<throws>("throws"),
      kernel<throws_a_number>("throws-a-number"), kernel<writes_inputs>("writes-inputs"),
      kernel<writes_nothing>("writes-nothing"), kernel<prints_gigabytes>("prints-gigabytes"),
      kernel<closes_files>("closes-files"), kernel<kills_itself>("kills-itself"), kernel<is_flaky>("flaky"), &crashes_in_supports};
  *kernels = list;
  return sizeof(list) / sizeof(list[0]);
}

// SPDX-License-Identifier: Apache-2.0
#include "tools/interrupt.h"

#include <csignal>

namespace attest::tools {
namespace {

volatile std::sig_atomic_t signalled = 0;

extern "C" void note_signal(int signal) {
  signalled = 1;
  std::signal(signal, SIG_DFL);
}

}  // namespace

void watch_interrupts() {
  std::signal(SIGINT, note_signal);
  std::signal(SIGTERM, note_signal);
}

bool interrupted() { return signalled != 0; }

}  // namespace attest::tools

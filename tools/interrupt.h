// SPDX-License-Identifier: Apache-2.0
// Ctrl-C and SIGTERM as a flag that long runs look at between cases. A second signal ends the process at once.
#pragma once

namespace attest::tools {

void watch_interrupts();
bool interrupted();

}  // namespace attest::tools

// SPDX-License-Identifier: Apache-2.0
// Ending a process together with everything it started.
#pragma once

#include <sys/types.h>

namespace attest {

/// Kills `leader`, a child of this process that leads a process group, its descendants and its group, and reaps them.
/// Returns the leader's wait status: how it had ended, where it was dead before. Descendants can be reaped where this
/// process is their subreaper.
int kill_process_tree(pid_t leader) noexcept;

/// True where the calling process has children, alive or not yet waited for.
bool has_children() noexcept;

}  // namespace attest

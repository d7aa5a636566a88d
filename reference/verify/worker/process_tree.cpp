// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/worker/process_tree.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace attest {
namespace {

/// Children of every thread of `process`, appended.
void add_children(pid_t process, std::vector<pid_t>& found) {
  const std::string tasks = "/proc/" + std::to_string(process) + "/task";
  DIR* folder = opendir(tasks.c_str());
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder)) {
    std::FILE* file = std::fopen((tasks + "/" + entry->d_name + "/children").c_str(), "re");
    if (file == nullptr) continue;
    int child = 0;
    while (std::fscanf(file, "%d", &child) == 1) found.push_back(child);
    std::fclose(file);
  }
  closedir(folder);
}

}  // namespace

int kill_process_tree(pid_t leader) noexcept {
  std::vector<pid_t> tree;
  try {
    add_children(leader, tree);
    for (std::size_t n = 0; n < tree.size(); ++n) add_children(tree[n], tree);
  } catch (...) {
    // Without memory for the list the group has to do.
  }
  kill(leader, SIGKILL);
  kill(-leader, SIGKILL);
  for (const pid_t process : tree) kill(process, SIGKILL);
  int status = 0;
  while (waitpid(leader, &status, 0) < 0 && errno == EINTR) {
  }
  // The leader's children have become ours by now; those of another session too, one by one.
  while (waitpid(-leader, nullptr, 0) > 0) {
  }
  for (const pid_t process : tree) waitpid(process, nullptr, 0);
  return status;
}

bool has_children() noexcept {
  siginfo_t info{};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

}  // namespace attest

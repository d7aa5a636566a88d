// SPDX-License-Identifier: Apache-2.0
// Runs functions in child processes, some at a time, so that a crash or a hang costs only its own answer.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace attest::tools {

struct ChildAnswer {
  std::string text;   // what the function returned
  std::string death;  // "signal 11", "no answer after 90 s"; empty where it returned
};

/// Calls work(n) for n in [0, count) in children of their own, `jobs` at a time, each given `seconds`; done(n, answer)
/// runs here as they end. No threads may have been started before.
void run_children(std::size_t count, int jobs, double seconds, const std::function<std::string(std::size_t)>& work,
                  const std::function<void(std::size_t, const ChildAnswer&)>& done);

}  // namespace attest::tools

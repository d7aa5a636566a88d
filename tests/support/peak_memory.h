// SPDX-License-Identifier: Apache-2.0
// Resident memory of this process and its peak, from /proc (Linux). For tests and benchmarks of memory use.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace attest {

/// Bytes of a field of /proc/self/status, "VmRSS" or "VmHWM"; 0 where there is none.
inline std::int64_t process_memory(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(field + ":", 0) == 0) return std::stoll(line.substr(field.size() + 1)) * 1024;
  }
  return 0;
}

/// Peak of the resident memory while `work` runs, above what was resident when it began.
template <typename Work>
std::int64_t peak_memory_of(Work work) {
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts again at the present size
  const std::int64_t before = process_memory("VmRSS");
  work();
  return process_memory("VmHWM") - before;
}

}  // namespace attest

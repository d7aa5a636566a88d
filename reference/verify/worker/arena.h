// SPDX-License-Identifier: Apache-2.0
// Memory that a process shares with its worker, at the same address in both, so that a call and all that it points at
// can be handed over as it is. Only the owner allocates; the worker maps it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace attest {

/// Start of every arena: what a dying worker has to say.
struct DeathNote {
  volatile std::int32_t signal = 0;
  volatile std::int32_t stack_overflow = 0;
  volatile std::uint64_t address = 0;
};

class Arena {
 public:
  /// Reserves addresses only; pages come with use. Throws std::system_error.
  Arena();
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// 256-byte aligned, contents undefined. Throws std::bad_alloc. Both may be called from any thread.
  void* allocate(std::size_t bytes);
  void release(void* data) noexcept;

  int file() const { return file_; }
  std::byte* base() const { return base_; }
  std::size_t bytes() const { return kBytes; }
  DeathNote& note() const { return *reinterpret_cast<DeathNote*>(base_); }

  static constexpr std::size_t kBytes = std::size_t{64} << 30;

 private:
  int file_ = -1;
  std::byte* base_ = nullptr;
  std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;  // bytes by offset
  std::map<std::size_t, std::size_t> used_;
};

/// In the worker: maps `file` where its owner has it. Throws std::system_error.
void map_arena(int file, std::uint64_t base);

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/worker/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <system_error>

namespace attest {
namespace {

// Far from where Linux puts programs, libraries, heaps and a sanitizer's shadow, in every process.
constexpr std::uint64_t kFirst = std::uint64_t{0x2000} << 32;
constexpr int kPlaces = 256;
constexpr std::size_t kAlignment = 256;
constexpr std::size_t kHeader = 4096;
constexpr std::size_t kGivenBack = std::size_t{4} << 20;  // blocks from this size on give their pages back at once

void* map_at(std::uint64_t address, int file) {
  return mmap(reinterpret_cast<void*>(address), Arena::kBytes, PROT_READ | PROT_WRITE,
              MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, file, 0);
}

[[noreturn]] void fail(const char* call) { throw std::system_error(errno, std::generic_category(), call); }

}  // namespace

Arena::Arena() {
  const int made = memfd_create("attest-arena", MFD_CLOEXEC);
  if (made < 0) fail("memfd_create");
  // Clear of the low numbers that a worker gets its own files under.
  file_ = fcntl(made, F_DUPFD_CLOEXEC, 16);
  close(made);
  if (file_ < 0 || ftruncate(file_, static_cast<off_t>(kBytes)) != 0) fail("ftruncate");
  for (int place = 0; place < kPlaces && base_ == nullptr; ++place) {
    void* mapped = map_at(kFirst + static_cast<std::uint64_t>(place) * kBytes, file_);
    if (mapped != MAP_FAILED) base_ = static_cast<std::byte*>(mapped);
  }
  if (base_ == nullptr) {
    close(file_);
    fail("mmap");
  }
  new (base_) DeathNote;
  free_[kHeader] = kBytes - kHeader;
}

Arena::~Arena() {
  munmap(base_, kBytes);
  close(file_);
}

void* Arena::allocate(std::size_t bytes) {
  const std::size_t wanted = (bytes / kAlignment + 1) * kAlignment;
  const std::lock_guard lock(mutex_);
  for (auto block = free_.begin(); block != free_.end(); ++block) {
    const auto [offset, size] = *block;
    if (size < wanted) continue;
    free_.erase(block);
    if (size > wanted) free_[offset + wanted] = size - wanted;
    used_[offset] = wanted;
    return base_ + offset;
  }
  throw std::bad_alloc();
}

void Arena::release(void* data) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(static_cast<std::size_t>(static_cast<std::byte*>(data) - base_));
  if (found == used_.end()) return;
  auto [offset, size] = *found;
  used_.erase(found);
  if (size >= kGivenBack) {
    const std::size_t from = (offset + 4095) / 4096 * 4096;
    const std::size_t to = (offset + size) / 4096 * 4096;
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from), static_cast<off_t>(to - from));
  }
  const auto after = free_.find(offset + size);
  if (after != free_.end()) {
    size += after->second;
    free_.erase(after);
  }
  const auto next = free_.lower_bound(offset);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  free_[offset] = size;
}

void map_arena(int file, std::uint64_t base) {
  if (map_at(base, file) == MAP_FAILED) fail("mmap of the arena");
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
#include "reference/problem/device_memory.h"

#include <chrono>
#include <cstring>
#include <new>

namespace attest {
namespace {

constexpr std::align_val_t kAlignment{256};

class HostMemory final : public DeviceMemory {
 public:
  std::string name() const override { return "host"; }
  void* allocate(std::size_t bytes) override { return ::operator new(bytes == 0 ? 1 : bytes, kAlignment); }
  void release(void* data) noexcept override { ::operator delete(data, kAlignment); }
  void upload(void* device, const void* host, std::size_t bytes) override { copy(device, host, bytes); }
  void download(void* host, const void* device, std::size_t bytes) override { copy(host, device, bytes); }
  void fill(void* device, std::uint8_t pattern, std::size_t bytes) override {
    if (bytes != 0) std::memset(device, pattern, bytes);
  }
  void* stream() override { return nullptr; }
  void synchronize(const std::string&) override {}

 private:
  static void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes != 0) std::memcpy(to, from, bytes);
  }
};

}  // namespace

double DeviceMemory::time_ms(const std::function<void()>& enqueue) {
  const auto begin = std::chrono::steady_clock::now();
  enqueue();
  synchronize("timing");
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

std::unique_ptr<DeviceMemory> make_host_memory() { return std::make_unique<HostMemory>(); }

}  // namespace attest

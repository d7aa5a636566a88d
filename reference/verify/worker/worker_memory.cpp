// SPDX-License-Identifier: Apache-2.0
#include "reference/verify/worker/worker_memory.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace attest {
namespace {

class ArenaMemory final : public DeviceMemory {
 public:
  explicit ArenaMemory(std::shared_ptr<WorkerProcess> process) : process_(std::move(process)) {}

  std::string name() const override { return "host"; }
  void* allocate(std::size_t bytes) override { return process_->arena().allocate(bytes); }
  void release(void* data) noexcept override { process_->arena().release(data); }
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

  std::shared_ptr<WorkerProcess> process_;
};

class WorkerDeviceMemory final : public DeviceMemory {
 public:
  explicit WorkerDeviceMemory(std::shared_ptr<WorkerProcess> process) : process_(std::move(process)) {}
  ~WorkerDeviceMemory() override {
    if (bounce_ != nullptr) process_->arena().release(bounce_);
  }

  std::string name() const override {
    Request request;
    request.order = Order::device_name;
    return process_->call(request, "the device's name").text[0];
  }

  void* allocate(std::size_t bytes) override {
    Request request;
    request.order = Order::allocate;
    request.bytes = bytes;
    void* data = reinterpret_cast<void*>(process_->call(request, "an allocation").value);
    generations_[data] = process_->generation();
    return data;
  }

  void release(void* data) noexcept override {
    const auto found = generations_.find(data);
    if (found == generations_.end()) return;
    const bool alive = found->second == process_->generation();
    generations_.erase(found);
    // What an ended worker had is gone with it.
    if (!alive) return;
    Request request;
    request.order = Order::release;
    request.at = data;
    try {
      process_->call(request, "a release");
    } catch (...) {
      // The worker is gone, and the memory too.
    }
  }

  void upload(void* device, const void* host, std::size_t bytes) override {
    for (std::size_t done = 0; done < bytes; done += kBounce) {
      const std::size_t part = std::min(kBounce, bytes - done);
      std::memcpy(bounce(), static_cast<const std::byte*>(host) + done, part);
      move(Order::upload, static_cast<std::byte*>(device) + done, bounce(), part);
    }
  }

  void download(void* host, const void* device, std::size_t bytes) override {
    for (std::size_t done = 0; done < bytes; done += kBounce) {
      const std::size_t part = std::min(kBounce, bytes - done);
      move(Order::download, bounce(), const_cast<std::byte*>(static_cast<const std::byte*>(device)) + done, part);
      std::memcpy(static_cast<std::byte*>(host) + done, bounce(), part);
    }
  }

  void fill(void* device, std::uint8_t pattern, std::size_t bytes) override {
    Request request;
    request.order = Order::fill;
    request.to = device;
    request.number = pattern;
    request.bytes = bytes;
    process_->call(request, "a fill of device memory");
  }

  void* stream() override { return nullptr; }

  void synchronize(const std::string&) override {
    Request request;
    request.order = Order::synchronize;
    process_->call(request, "the kernel on the device");
  }

 private:
  static constexpr std::size_t kBounce = std::size_t{32} << 20;

  void move(Order order, void* to, void* from, std::size_t bytes) {
    Request request;
    request.order = order;
    request.to = to;
    request.at = from;
    request.bytes = bytes;
    process_->call(request, order == Order::upload ? "a copy to the device" : "a copy from the device");
  }

  void* bounce() {
    if (bounce_ == nullptr) bounce_ = process_->arena().allocate(kBounce);
    return bounce_;
  }

  std::shared_ptr<WorkerProcess> process_;
  std::map<void*, std::int64_t> generations_;
  void* bounce_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceMemory> make_arena_memory(std::shared_ptr<WorkerProcess> process) {
  return std::make_unique<ArenaMemory>(std::move(process));
}

std::unique_ptr<DeviceMemory> make_worker_device_memory(std::shared_ptr<WorkerProcess> process) {
  return std::make_unique<WorkerDeviceMemory>(std::move(process));
}

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// Memory of the device a kernel runs on, as the harness sees it: buffers, copies, fills, one stream. The host has
// an implementation here; cuda/device_memory.h has the one for CUDA. Code above this line needs no CUDA header.
//
//   const std::unique_ptr<DeviceMemory> memory = make_host_memory();
//   DeviceBuffer buffer(*memory, 1024);
//   memory->fill(buffer.data(), 0xff, buffer.bytes());
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace attest {

/// A call of the device's run-time library failed, or work given to the device before did.
class DeviceError : public std::runtime_error {
 public:
  /// what() reads "CALL: REASON", with " (CONTEXT)" where there is one: the kernel and the case.
  DeviceError(std::string call, std::string reason, std::string context = {})
      : std::runtime_error(call + ": " + reason + (context.empty() ? "" : " (" + context + ")")),
        call_(std::move(call)), reason_(std::move(reason)), context_(std::move(context)) {}

  const std::string& call() const { return call_; }
  const std::string& reason() const { return reason_; }
  const std::string& context() const { return context_; }

 private:
  std::string call_;
  std::string reason_;
  std::string context_;
};

/// What a device can do at most, by its own description; 0 where it does not say.
struct DeviceRates {
  double matrix_flops = 0;  // a second, 16-bit operands into f32, dense
  double bytes = 0;         // a second, of its memory
};

/// Every operation is ordered after the earlier ones and, together with the kernels enqueued on stream(), in one
/// sequence. All may throw DeviceError; an error of earlier asynchronous work is thrown at the latest by synchronize().
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  virtual ~DeviceMemory() = default;

  /// "host", or the device's own name and architecture.
  virtual std::string name() const = 0;

  /// 256-byte aligned, contents undefined; never null, for 0 bytes neither.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* data) noexcept = 0;

  virtual void upload(void* device, const void* host, std::size_t bytes) = 0;
  /// Returns when the bytes are there, hence after all earlier work.
  virtual void download(void* host, const void* device, std::size_t bytes) = 0;
  virtual void fill(void* device, std::uint8_t pattern, std::size_t bytes) = 0;

  /// What attest_call.stream gets: a cudaStream_t, or null on the host.
  virtual void* stream() = 0;
  /// Waits for all earlier work; throws DeviceError naming `context` if any of it failed.
  virtual void synchronize(const std::string& context = {}) = 0;

  /// Milliseconds that the device spends on what `enqueue` puts on stream(); waits for it. Unless the device has a clock
  /// of its own, by the host's.
  virtual double time_ms(const std::function<void()>& enqueue);
  /// Bytes of the device that are taken, by whomever; nothing where that is not known.
  virtual std::optional<std::size_t> used_bytes() const { return std::nullopt; }
  virtual DeviceRates rates() const { return {}; }
};

std::unique_ptr<DeviceMemory> make_host_memory();

/// Owns one allocation.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceMemory& memory, std::size_t bytes)
      : memory_(&memory), data_(static_cast<std::byte*>(memory.allocate(bytes))), bytes_(bytes) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceBuffer() {
    if (data_ != nullptr) memory_->release(data_);
  }

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void swap(DeviceBuffer& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  DeviceMemory* memory_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace attest

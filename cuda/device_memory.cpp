// SPDX-License-Identifier: Apache-2.0
#include "cuda/device_memory.h"

#include <cuda_runtime_api.h>

#include "cuda/error.h"

namespace attest::cuda {
namespace {

class CudaMemory final : public DeviceMemory {
 public:
  CudaMemory() {
    check(cudaSetDevice(0), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaEventCreate(&begin_), "cudaEventCreate");
    check(cudaEventCreate(&end_), "cudaEventCreate");
  }
  ~CudaMemory() override {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaStreamDestroy(stream_);
  }

  std::string name() const override {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    return std::string(properties.name) + " (sm_" + std::to_string(properties.major) +
           std::to_string(properties.minor) + ")";
  }

  void* allocate(std::size_t bytes) override {
    void* data = nullptr;
    check(cudaMalloc(&data, bytes == 0 ? 1 : bytes), "cudaMalloc", std::to_string(bytes) + " bytes");
    return data;
  }
  void release(void* data) noexcept override { cudaFree(data); }

  void upload(void* device, const void* host, std::size_t bytes) override {
    if (bytes == 0) return;
    check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync to the device");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  void download(void* host, const void* device, std::size_t bytes) override {
    if (bytes == 0) return;
    check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync to the host");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  void fill(void* device, std::uint8_t pattern, std::size_t bytes) override {
    if (bytes != 0) check(cudaMemsetAsync(device, pattern, bytes, stream_), "cudaMemsetAsync");
  }

  void* stream() override { return stream_; }
  void synchronize(const std::string& context) override {
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize", context);
    check(cudaGetLastError(), "cudaGetLastError", context);
  }

  double time_ms(const std::function<void()>& enqueue) override {
    check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
    enqueue();
    check(cudaEventRecord(end_, stream_), "cudaEventRecord");
    synchronize("timing");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
    return ms;
  }
  std::optional<std::size_t> used_bytes() const override {
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return total - free;
  }
  DeviceRates rates() const override {
    const auto attribute = [](cudaDeviceAttr which) {
      int value = 0;
      check(cudaDeviceGetAttribute(&value, which, 0), "cudaDeviceGetAttribute");
      return static_cast<double>(value);
    };
    // Multiply-adds of a multiprocessor in one cycle count as two operations: 2048 on sm_80, 4096 on sm_90.
    const double major = attribute(cudaDevAttrComputeCapabilityMajor);
    const double minor = attribute(cudaDevAttrComputeCapabilityMinor);
    const double per_cycle = major == 8 && minor == 0 ? 2048 : major == 9 ? 4096 : 0;
    constexpr double kKilohertz = 1e3, kBitsPerByte = 8, kTransfersPerCycle = 2;
    return {per_cycle * attribute(cudaDevAttrMultiProcessorCount) * attribute(cudaDevAttrClockRate) * kKilohertz,
            attribute(cudaDevAttrMemoryClockRate) * kKilohertz * kTransfersPerCycle *
                attribute(cudaDevAttrGlobalMemoryBusWidth) / kBitsPerByte};
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceMemory> make_cuda_memory() { return std::make_unique<CudaMemory>(); }

}  // namespace attest::cuda

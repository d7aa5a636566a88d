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
  }
  ~CudaMemory() override { cudaStreamDestroy(stream_); }

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

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceMemory> make_cuda_memory() { return std::make_unique<CudaMemory>(); }

}  // namespace attest::cuda

// SPDX-License-Identifier: Apache-2.0
// The host's DeviceMemory, DeviceBuffer's ownership and the text of DeviceError.
#include "reference/problem/device_memory.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace attest {
namespace {

TEST(HostMemory, AllocatesAlignedAndNeverNull) {
  const auto memory = make_host_memory();
  for (const std::size_t bytes : {0u, 1u, 255u, 4096u}) {
    const DeviceBuffer buffer(*memory, bytes);
    ASSERT_NE(buffer.data(), nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, 0u);
    EXPECT_EQ(buffer.bytes(), bytes);
  }
  EXPECT_EQ(memory->name(), "host");
  EXPECT_EQ(memory->stream(), nullptr);
}

TEST(HostMemory, CopiesAndFills) {
  const auto memory = make_host_memory();
  const DeviceBuffer buffer(*memory, 4);
  memory->fill(buffer.data(), 0xab, 4);
  const std::array<std::uint8_t, 2> sent = {1, 2};
  memory->upload(buffer.data() + 1, sent.data(), sent.size());
  std::array<std::uint8_t, 4> got = {};
  memory->synchronize();
  memory->download(got.data(), buffer.data(), got.size());
  EXPECT_EQ(got, (std::array<std::uint8_t, 4>{0xab, 1, 2, 0xab}));
}

TEST(HostMemory, AcceptsEmptyCopies) {
  const auto memory = make_host_memory();
  memory->upload(nullptr, nullptr, 0);
  memory->download(nullptr, nullptr, 0);
  memory->fill(nullptr, 0, 0);
}

TEST(DeviceBuffer, MovesItsAllocation) {
  const auto memory = make_host_memory();
  DeviceBuffer from(*memory, 16);
  std::byte* const data = from.data();
  DeviceBuffer to;
  to = std::move(from);
  EXPECT_EQ(to.data(), data);
  EXPECT_EQ(to.bytes(), 16u);
}

TEST(DeviceError, NamesCallReasonAndContext) {
  const DeviceError error("cudaMemcpy", "an illegal memory access was encountered", "cuda-flash, dtype=bf16");
  EXPECT_STREQ(error.what(), "cudaMemcpy: an illegal memory access was encountered (cuda-flash, dtype=bf16)");
  EXPECT_STREQ(DeviceError("cudaMalloc", "out of memory").what(), "cudaMalloc: out of memory");
}

}  // namespace
}  // namespace attest

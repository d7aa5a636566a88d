// SPDX-License-Identifier: Apache-2.0
// Loads and stores of single elements of any storage type, through float32, one rounding to nearest even.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "reference/problem/kernel_abi.h"

namespace attest::cuda {

__device__ inline float load_element(int dtype, const void* data, std::int64_t index) {
  switch (dtype) {
    case ATTEST_F16:
      return __half2float(static_cast<const __half*>(data)[index]);
    case ATTEST_BF16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[index]);
    case ATTEST_F8E4M3:
      return static_cast<float>(static_cast<const __nv_fp8_e4m3*>(data)[index]);
    case ATTEST_F8E5M2:
      return static_cast<float>(static_cast<const __nv_fp8_e5m2*>(data)[index]);
    default:
      return static_cast<const float*>(data)[index];
  }
}

/// f8 types saturate, the others become infinite past their range.
__device__ inline void store_element(int dtype, void* data, std::int64_t index, float value) {
  switch (dtype) {
    case ATTEST_F16:
      static_cast<__half*>(data)[index] = __float2half_rn(value);
      break;
    case ATTEST_BF16:
      static_cast<__nv_bfloat16*>(data)[index] = __float2bfloat16_rn(value);
      break;
    case ATTEST_F8E4M3:
      static_cast<__nv_fp8_storage_t*>(data)[index] = __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
      break;
    case ATTEST_F8E5M2:
      static_cast<__nv_fp8_storage_t*>(data)[index] = __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E5M2);
      break;
    default:
      static_cast<float*>(data)[index] = value;
  }
}

__host__ __device__ inline int bytes_of(int dtype) {
  return dtype == ATTEST_F32 ? 4 : dtype == ATTEST_F16 || dtype == ATTEST_BF16 ? 2 : 1;
}

/// Start of (token row0 of the sequence's rows, head) as bytes, for load_element and store_element.
template <typename Tensor>
__device__ std::int64_t element_offset(const Tensor& tensor, int b, std::int64_t row, int head) {
  return b * tensor.batch + row * tensor.seq + head * tensor.head;
}

}  // namespace attest::cuda

// SPDX-License-Identifier: Apache-2.0
//
// Rows of activations and sums, 16 bytes at a time, as fp32.
#ifndef HALFBYTE_KERNELS_CUDA_COMMON_LOAD_VALUES_CUH_
#define HALFBYTE_KERNELS_CUDA_COMMON_LOAD_VALUES_CUH_

#include <cstdint>

namespace halfbyte::cuda {

/// Eight bf16 values, the first in the lowest half.
__device__ __forceinline__ void widen_bf16(uint4 words, float* values) {
  const std::uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = __uint_as_float(pairs[i] << 16);
    values[2 * i + 1] = __uint_as_float(pairs[i] & 0xFFFF0000U);
  }
}

/// `src`: bf16, aligned to 16 bytes.
template <int kCount>
__device__ __forceinline__ void load_bf16(const void* src, float (&values)[kCount]) {
  uint4 words[kCount / 8];
#pragma unroll
  for (int i = 0; i < kCount / 8; ++i)
    words[i] = static_cast<const uint4*>(src)[i];
#pragma unroll
  for (int i = 0; i < kCount / 8; ++i)
    widen_bf16(words[i], values + 8 * i);
}

/// `src`: aligned to 16 bytes.
template <int kCount>
__device__ __forceinline__ void load_f32(const float* src, float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount / 4; ++i) {
    const float4 four = reinterpret_cast<const float4*>(src)[i];
    values[4 * i] = four.x;
    values[4 * i + 1] = four.y;
    values[4 * i + 2] = four.z;
    values[4 * i + 3] = four.w;
  }
}

}  // namespace halfbyte::cuda

#endif  // HALFBYTE_KERNELS_CUDA_COMMON_LOAD_VALUES_CUH_

// SPDX-License-Identifier: Apache-2.0
//
// Words of formats/sm90_layout.h -> bf16 fragments. Every code times scale has at most 6
// significant bits, so the result is exact.
#ifndef HALFBYTE_KERNELS_CUDA_COMMON_NVFP4_DECODE_CUH_
#define HALFBYTE_KERNELS_CUDA_COMMON_NVFP4_DECODE_CUH_

#include <cstdint>

#include "kernels/cuda/ptx/mma.cuh"

namespace halfbyte::cuda {

/// The decoder yields code * scale * 2^-8: a magnitude at bits 8:6 of a bf16 is code * 2^-126, and
/// a scale's image is scale * 2^118. Multiply the sums by this, exactly.
inline constexpr float kDecodedScale = 256.0F;

/// Scale byte number `byte` of a word as a pair of bf16.
__device__ __forceinline__ std::uint32_t scale_pair(std::uint32_t word, int byte) {
  return ptx::permute_bytes(word, 0, static_cast<std::uint32_t>(0x4440 + byte)) * 0x00100010U +
         0x70007000U;
}

/// One word: the four A registers of one m16 k16 step. s0 scales row r, s1 row r + 8.
__device__ __forceinline__ void decode_step(std::uint32_t word,
                                            std::uint32_t s0,
                                            std::uint32_t s1,
                                            std::uint32_t* a) {
  constexpr std::uint32_t kMask = 0x81C081C0U;
  a[0] = ptx::mul_bf16x2(word & kMask, s0);
  a[2] = ptx::mul_bf16x2(__funnelshift_r(word, word, 3) & kMask, s0);
  a[1] = ptx::mul_bf16x2(__funnelshift_r(word, word, 6) & kMask, s1);
  // Bits 4, 3, 1, 0 go to 6, 15, 8, 7 in one product: its three shifts never meet.
  a[3] = ptx::mul_bf16x2(((word & 0x001B001BU) * 0x1084U) & kMask, s1);
}

/// A lane's 16 bytes: four k16 steps of one m16 tile.
__device__ __forceinline__ void decode_tile(uint4 words,
                                            std::uint32_t s0,
                                            std::uint32_t s1,
                                            std::uint32_t* a) {
  decode_step(words.x, s0, s1, a);
  decode_step(words.y, s0, s1, a + 4);
  decode_step(words.z, s0, s1, a + 8);
  decode_step(words.w, s0, s1, a + 12);
}

}  // namespace halfbyte::cuda

#endif  // HALFBYTE_KERNELS_CUDA_COMMON_NVFP4_DECODE_CUH_

// SPDX-License-Identifier: Apache-2.0
//
// Blocks of 128 columns in E4M3 with a scale, bit for bit quantize_row_to_e4m3
// (formats/e4m3_fold.h). Eight lanes hold a block, 16 columns each, and call together with all of
// their warp.
#ifndef HALFBYTE_KERNELS_CUDA_SM90_E4M3_BLOCKS_CUH_
#define HALFBYTE_KERNELS_CUDA_SM90_E4M3_BLOCKS_CUH_

#include <cstdint>

#include "formats/sm90_fp8_layout.h"
#include "kernels/cuda/ptx/mma.cuh"

namespace halfbyte::sm90 {

inline constexpr int kLaneCols = 16;
inline constexpr int kLanesPerBlock = kFp8BlockCols / kLaneCols;
inline constexpr int kWarpBlocks = 32 / kLanesPerBlock;

/// The scale of a block from the columns of its eight lanes: amax / 448 over what is finite, 0 when
/// that is below 2^-100.
__device__ __forceinline__ float block_scale(const float (&v)[kLaneCols]) {
  float amax = 0.0F;
#pragma unroll
  for (const float value : v)
    amax = isfinite(value) ? fmaxf(amax, fabsf(value)) : amax;
#pragma unroll
  for (int d = 1; d < kLanesPerBlock; d *= 2)
    amax = fmaxf(amax, __shfl_xor_sync(~0U, amax, d));
  return amax < 0x1p-100F ? 0.0F : __fdiv_rn(amax, 448.0F);
}

/// From this scale on a quotient takes a few steps.
constexpr float kLeastScaleOfSteps = 0x1p-60F;

/// value / scale as IEEE division rounds. With the reciprocal rounded to nearest, one Newton step
/// is that, unless the remainder underflows; it loses the sign of zeros. Scales so small take the
/// division itself, and a scale of 0 makes everything 0.
template <bool kBySteps>
__device__ __forceinline__ float divide(float value, float scale, float reciprocal) {
  if constexpr (kBySteps) {
    const float quotient = value * reciprocal;
    const float result = __fmaf_rn(__fmaf_rn(-quotient, scale, value), reciprocal, quotient);
    return __uint_as_float(__float_as_uint(result) | (__float_as_uint(value) & 0x80000000U));
  } else {
    return scale == 0.0F ? 0.0F : __fdiv_rn(value, scale);
  }
}

/// The codes of 16 columns, in order. NaN stays, and what is infinite becomes it.
template <bool kBySteps>
__device__ __forceinline__ void encode(const float (&v)[kLaneCols],
                                       float scale,
                                       std::uint32_t (&words)[4]) {
  const float reciprocal = kBySteps ? 1.0F / scale : 0.0F;
  std::uint16_t pairs[kLaneCols / 2];
#pragma unroll
  for (int i = 0; i < kLaneCols; i += 2) {
    float scaled[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float quotient = divide<kBySteps>(v[i + j], scale, reciprocal);
      scaled[j] = isfinite(v[i + j]) ? quotient : __uint_as_float(0x7FFFFFFFU);
    }
    asm("cvt.rn.satfinite.e4m3x2.f32 %0,%1,%2;"
        : "=h"(pairs[i / 2])
        : "f"(scaled[1]), "f"(scaled[0]));
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    words[i] = pairs[2 * i] | static_cast<std::uint32_t>(pairs[2 * i + 1]) << 16;
}

/// A lane's codes in order, and the scale of its block.
struct E4m3Block {
  std::uint32_t words[4];
  float scale;
};
__device__ __forceinline__ E4m3Block quantize_block(const float (&v)[kLaneCols]) {
  E4m3Block block;
  block.scale = block_scale(v);
  if (block.scale >= kLeastScaleOfSteps)
    encode<true>(v, block.scale, block.words);
  else
    encode<false>(v, block.scale, block.words);
  __syncwarp();
  return block;
}

/// A lane's 16 values as fp16.
__device__ __forceinline__ void store_f16(void* dst, const std::uint32_t (&words)[4]) {
  std::uint32_t pairs[8];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    ptx::widen_e4m3(words[i], pairs[2 * i], pairs[2 * i + 1]);
  auto* chunks = static_cast<uint4*>(dst);
  chunks[0] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  chunks[1] = make_uint4(pairs[4], pairs[5], pairs[6], pairs[7]);
}

}  // namespace halfbyte::sm90

#endif  // HALFBYTE_KERNELS_CUDA_SM90_E4M3_BLOCKS_CUH_

// SPDX-License-Identifier: Apache-2.0
//
// Groups of 16 values that share a scale, in halves: lanes 2i and 2i + 1 of a warp hold one.
#ifndef HALFBYTE_KERNELS_CUDA_SM90_GRID_VALUES_CUH_
#define HALFBYTE_KERNELS_CUDA_SM90_GRID_VALUES_CUH_

#include "kernels/cuda/common/nvfp4_quantize.h"

namespace halfbyte::sm90 {

inline constexpr int kHalfGroup = cuda::kNvfp4Block / 2;

/// The half group on the NVFP4 grid, as bf16. Called by whole warps.
__device__ __forceinline__ uint4 grid_half_group(const float (&v)[kHalfGroup],
                                                 const cuda::QuantizeScale& scale) {
  std::uint32_t amax_bits = 0;
#pragma unroll
  for (int i = 0; i < kHalfGroup; ++i)
    amax_bits = cuda::larger(amax_bits, cuda::magnitude_bits(v[i]));
  amax_bits = cuda::larger(amax_bits, __shfl_xor_sync(~0U, amax_bits, 1));
  const cuda::BlockScale block = cuda::make_block_scale(amax_bits, scale);
  std::uint32_t pair[kHalfGroup / 2];
#pragma unroll
  for (int i = 0; i < kHalfGroup / 2; ++i)
    pair[i] =
        cuda::grid_pair(cuda::grid_value(v[2 * i], block), cuda::grid_value(v[2 * i + 1], block));
  return make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

}  // namespace halfbyte::sm90

#endif  // HALFBYTE_KERNELS_CUDA_SM90_GRID_VALUES_CUH_

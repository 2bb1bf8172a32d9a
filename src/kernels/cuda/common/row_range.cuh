// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_KERNELS_CUDA_COMMON_ROW_RANGE_CUH_
#define HALFBYTE_KERNELS_CUDA_COMMON_ROW_RANGE_CUH_

#include "kernels/cuda/common/nvfp4_quantize.h"

namespace halfbyte::cuda {

/// The range of a row from the parts that a block's threads saw; the same in every thread. The
/// first barrier also waits for those who still read the row before.
template <int kThreads>
__device__ __forceinline__ RowRange reduce_range(RowRange range) {
  __shared__ float warp_amax[kThreads / 32];
  const bool any_finite = __syncthreads_or(range.any_finite) != 0;
  for (int d = 16; d > 0; d /= 2)
    range.amax = fmaxf(range.amax, __shfl_xor_sync(~0U, range.amax, d));
  if (threadIdx.x % 32 == 0) warp_amax[threadIdx.x / 32] = range.amax;
  __syncthreads();
  RowRange whole;
  whole.any_finite = any_finite;
  for (const float amax : warp_amax)
    whole.amax = fmaxf(whole.amax, amax);
  return whole;
}

}  // namespace halfbyte::cuda

#endif  // HALFBYTE_KERNELS_CUDA_COMMON_ROW_RANGE_CUH_

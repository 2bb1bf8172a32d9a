// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_KERNELS_CUDA_COMMON_WARP_SUM_CUH_
#define HALFBYTE_KERNELS_CUDA_COMMON_WARP_SUM_CUH_

namespace halfbyte::cuda {

/// Of this lane's value and those of the lanes before it; the whole warp calls it.
__device__ __forceinline__ int inclusive_warp_sum(int value) {
  for (int d = 1; d < 32; d *= 2) {
    const int other = __shfl_up_sync(~0U, value, static_cast<unsigned>(d));
    if (static_cast<int>(threadIdx.x) % 32 >= d) value += other;
  }
  return value;
}

}  // namespace halfbyte::cuda

#endif  // HALFBYTE_KERNELS_CUDA_COMMON_WARP_SUM_CUH_

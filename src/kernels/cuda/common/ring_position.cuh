// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_KERNELS_CUDA_COMMON_RING_POSITION_CUH_
#define HALFBYTE_KERNELS_CUDA_COMMON_RING_POSITION_CUH_

#include <cstdint>

namespace halfbyte::cuda {

/// A position in a ring of barriers.
template <int kDepth>
struct RingPosition {
  int slot = 0;
  std::uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++slot == kDepth) {
      slot = 0;
      parity ^= 1;
    }
  }
};

}  // namespace halfbyte::cuda

#endif  // HALFBYTE_KERNELS_CUDA_COMMON_RING_POSITION_CUH_

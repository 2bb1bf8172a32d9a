// SPDX-License-Identifier: Apache-2.0
//
// Barriers in shared memory (addresses from shared_address).
#ifndef HALFBYTE_KERNELS_CUDA_PTX_MBARRIER_CUH_
#define HALFBYTE_KERNELS_CUDA_PTX_MBARRIER_CUH_

#include <cstdint>

namespace halfbyte::ptx {

__device__ __forceinline__ void init_barrier(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0],%1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// Arrives, and announces `bytes` of bulk copies.
__device__ __forceinline__ void arrive_expect(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _,[%0],%1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _,[%0];" ::"r"(barrier) : "memory");
}

/// Waits until the phase of this parity is complete.
__device__ __forceinline__ void wait(std::uint32_t barrier, std::uint32_t parity) {
  asm volatile(
      "{.reg .pred P;\nW_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 P,[%0],%1;\n@!P bra W_%=;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

}  // namespace halfbyte::ptx

#endif  // HALFBYTE_KERNELS_CUDA_PTX_MBARRIER_CUH_

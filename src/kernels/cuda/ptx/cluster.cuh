// SPDX-License-Identifier: Apache-2.0
//
// Blocks of a cluster: their barrier, and what one does in another's shared memory. Addresses are
// those of the same place in one's own.
#ifndef HALFBYTE_KERNELS_CUDA_PTX_CLUSTER_CUH_
#define HALFBYTE_KERNELS_CUDA_PTX_CLUSTER_CUH_

#include <cstdint>

namespace halfbyte::ptx {

__device__ __forceinline__ std::uint32_t cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0,%%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// All threads of the cluster's blocks that have not ended; what they wrote before is visible.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// What block `rank` has at this address.
__device__ __forceinline__ std::int32_t load_from(std::uint32_t address, std::uint32_t rank) {
  std::int32_t value;
  asm volatile(
      "{.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote,%1,%2;\n"
      "ld.shared::cluster.s32 %0,[remote];\n}"
      : "=r"(value)
      : "r"(address), "r"(rank)
      : "memory");
  return value;
}

/// Arrives at the barrier of block `rank`. Orders nothing beyond this block: for slots that were
/// read.
__device__ __forceinline__ void arrive_at(std::uint32_t barrier, std::uint32_t rank) {
  asm volatile(
      "{.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote,%0,%1;\n"
      "mbarrier.arrive.shared::cluster.b64 _,[remote];\n}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

/// A bulk copy into every block of `mask`; each block's barrier counts the bytes that it got.
__device__ __forceinline__ void multicast_copy(std::uint32_t dst,
                                               const void* src,
                                               std::uint32_t bytes,
                                               std::uint32_t barrier,
                                               std::uint16_t mask) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0],[%1],%2,[%3],%4;" ::"r"(dst),
      "l"(src), "r"(bytes), "r"(barrier), "h"(mask)
      : "memory");
}

}  // namespace halfbyte::ptx

#endif  // HALFBYTE_KERNELS_CUDA_PTX_CLUSTER_CUH_

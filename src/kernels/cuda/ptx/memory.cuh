// SPDX-License-Identifier: Apache-2.0
//
// One wrapper an instruction: loads, copies and their ordering.
#ifndef HALFBYTE_KERNELS_CUDA_PTX_MEMORY_CUH_
#define HALFBYTE_KERNELS_CUDA_PTX_MEMORY_CUH_

#include <cstdint>

namespace halfbyte::ptx {

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ uint4 load_shared_16(std::uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3},[%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address));
  return v;
}

__device__ __forceinline__ std::uint32_t load_shared_4(std::uint32_t address) {
  std::uint32_t v;
  asm volatile("ld.shared.u32 %0,[%1];" : "=r"(v) : "r"(address));
  return v;
}

__device__ __forceinline__ std::uint32_t load_shared_2(std::uint32_t address) {
  std::uint16_t v;
  asm volatile("ld.shared.u16 %0,[%1];" : "=h"(v) : "r"(address));
  return v;
}

__device__ __forceinline__ float4 load_shared_float4(std::uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3},[%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address));
  return v;
}

__device__ __forceinline__ void store_shared_4(std::uint32_t address, std::uint32_t v) {
  asm volatile("st.shared.u32 [%0],%1;" ::"r"(address), "r"(v) : "memory");
}

__device__ __forceinline__ void store_shared_16(std::uint32_t address, uint4 v) {
  asm volatile("st.shared.v4.u32 [%0],{%1,%2,%3,%4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}

/// Hides a value's origin, so that the compiler keeps it in a register.
__device__ __forceinline__ std::uint32_t opaque(std::uint32_t v) {
  asm volatile("mov.u32 %0,%0;" : "+r"(v));
  return v;
}

/// Lane 0's value. The compiler then knows that the warp agrees on it, so that loops and addresses
/// made of it stay in uniform registers: products issue back to back only when their descriptors
/// do.
__device__ __forceinline__ int uniform(int v) {
  return __shfl_sync(~0U, v, 0);
}

/// L2 policy for data that is read once.
__device__ __forceinline__ std::uint64_t evict_first_policy() {
  std::uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// Asynchronous copy of `bytes` (a multiple of 16) that completes on the barrier's byte count.
__device__ __forceinline__ void bulk_copy(std::uint32_t dst,
                                          const void* src,
                                          std::uint32_t bytes,
                                          std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1],%2,[%3];" ::"r"(
          dst),
      "l"(src), "r"(bytes), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void bulk_copy(std::uint32_t dst,
                                          const void* src,
                                          std::uint32_t bytes,
                                          std::uint32_t barrier,
                                          std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0],[%1],%2,[%3],%4;" ::"r"(dst),
      "l"(src), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

/// Asynchronous copy of 16 bytes through L2; of `src_bytes` < 16 the rest is zero.
__device__ __forceinline__ void copy_16(std::uint32_t dst,
                                        const void* src,
                                        std::uint32_t src_bytes) {
  asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" ::"r"(dst), "l"(src), "r"(src_bytes)
               : "memory");
}

/// Arrives at the barrier when this thread's earlier copy_16 are done; counts as one arrival.
__device__ __forceinline__ void arrive_after_copies(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

__device__ __forceinline__ void prefetch_l1(const void* pointer) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(pointer));
}

/// Waits until at most kPending of this thread's committed groups are unfinished.
template <int kPending>
__device__ __forceinline__ void wait_for_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

__device__ __forceinline__ int load_acquire(const std::int32_t* pointer) {
  std::int32_t v;
  asm volatile("ld.acquire.gpu.global.s32 %0,[%1];" : "=r"(v) : "l"(pointer) : "memory");
  return v;
}

__device__ __forceinline__ void add_release(std::int32_t* pointer, std::int32_t value) {
  asm volatile("red.release.gpu.global.add.s32 [%0],%1;" ::"l"(pointer), "r"(value) : "memory");
}

/// The value before; orders this thread's accesses on both sides.
__device__ __forceinline__ int add_acquire_release(std::int32_t* pointer, std::int32_t value) {
  std::int32_t v;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0,[%1],%2;"
               : "=r"(v)
               : "l"(pointer), "r"(value)
               : "memory");
  return v;
}

/// Shared memory written by ordinary stores becomes visible to the tensor cores and bulk copies.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Lets the next kernel of the stream start; its memory reads wait in wait_for_previous_kernel. If
/// that kernel reads anything before its wait, wait_then_launch_next() is wanted instead.
__device__ __forceinline__ void launch_next_kernel() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
__device__ __forceinline__ void wait_for_previous_kernel() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
/// The next kernel then starts when all kernels before this one are done, so it may read what they
/// wrote, past L1, and waits only for what this one writes.
__device__ __forceinline__ void wait_then_launch_next() {
  wait_for_previous_kernel();
  launch_next_kernel();
}

/// Barrier `id` of `threads` threads of this block.
__device__ __forceinline__ void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0,%1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace halfbyte::ptx

#endif  // HALFBYTE_KERNELS_CUDA_PTX_MEMORY_CUH_

// SPDX-License-Identifier: Apache-2.0
//
// Tensor-core and bf16 pair instructions.
#ifndef HALFBYTE_KERNELS_CUDA_PTX_MMA_CUH_
#define HALFBYTE_KERNELS_CUDA_PTX_MMA_CUH_

#include <cstdint>

namespace halfbyte::ptx {

/// d[16 x 8] += a[16 x 16] b[16 x 8], bf16 with fp32 sums.
__device__ __forceinline__ void mma_16x8x16(float (&d)[4],
                                            const std::uint32_t* a,
                                            std::uint32_t b0,
                                            std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// The same of fp16.
__device__ __forceinline__ void mma_16x8x16_f16(float (&d)[4],
                                                const std::uint32_t* a,
                                                std::uint32_t b0,
                                                std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Four E4M3 values as two pairs of fp16, which holds every one.
__device__ __forceinline__ void widen_e4m3(std::uint32_t four,
                                           std::uint32_t& first,
                                           std::uint32_t& last) {
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %2;"
      " cvt.rn.f16x2.e4m3x2 %0, low; cvt.rn.f16x2.e4m3x2 %1, high;}"
      : "=r"(first), "=r"(last)
      : "r"(four));
}

/// Product of two bf16 pairs; keeps subnormal inputs.
__device__ __forceinline__ std::uint32_t mul_bf16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t r;
  asm("mul.rn.bf16x2 %0,%1,%2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}

/// Two values rounded to bf16, the first in the lower half.
__device__ __forceinline__ std::uint32_t bf16_pair(float first, float second) {
  std::uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(r) : "f"(second), "f"(first));
  return r;
}

template <int kTable>
__device__ __forceinline__ std::uint32_t lop3(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t r;
  asm("lop3.b32 %0,%1,%2,%3,%4;" : "=r"(r) : "r"(a), "r"(b), "r"(c), "n"(kTable));
  return r;
}

__device__ __forceinline__ std::uint32_t permute_bytes(std::uint32_t a,
                                                       std::uint32_t b,
                                                       std::uint32_t selector) {
  std::uint32_t r;
  asm("prmt.b32 %0,%1,%2,%3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
  return r;
}

/// v >> 16 by the multiplier, for loops that the shifts' pipe holds up.
__device__ __forceinline__ std::uint32_t high_half(std::uint32_t v) {
  std::uint32_t r;
  asm("mul.hi.u32 %0,%1,%2;" : "=r"(r) : "r"(v), "r"(0x10000));
  return r;
}

/// Transposes the 8 x 8 matrix of 16-bit values that a warp holds one row pair a lane.
__device__ __forceinline__ std::uint32_t transpose_8x8(std::uint32_t v) {
  std::uint32_t r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0,%1;" : "=r"(r) : "r"(v));
  return r;
}

/// Stores four such matrices transposed; lane l gives the address of row l % 8 (16 bytes) of matrix
/// l / 8.
__device__ __forceinline__ void store_transposed_8x8x4(std::uint32_t address,
                                                       const std::uint32_t (&v)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0],{%1,%2,%3,%4};" ::"r"(address),
               "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
               : "memory");
}

/// 1 / x within an ulp, for x whose inverse is a normal number too.
__device__ __forceinline__ float reciprocal_approx(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0,%1;" : "=f"(r) : "f"(x));
  return r;
}

__device__ __forceinline__ float exp2_approx(float x) {
  float r;
  asm("ex2.approx.f32 %0,%1;" : "=f"(r) : "f"(x));
  return r;
}

}  // namespace halfbyte::ptx

#endif  // HALFBYTE_KERNELS_CUDA_PTX_MMA_CUH_

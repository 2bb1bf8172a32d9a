// SPDX-License-Identifier: Apache-2.0
//
// Panels of NVFP4 weights in AVX-512 registers, for the units that have VBMI. vpermb looks codes up
// by 6 bits in a table of 16 entries repeated four times, so nibbles need no mask. Everything has
// internal linkage: each unit is compiled with flags of its own.
#ifndef HALFBYTE_KERNELS_CPU_INTEGER_ZMM_H_
#define HALFBYTE_KERNELS_CPU_INTEGER_ZMM_H_

#include <immintrin.h>

#include "kernels/cpu/integer_kernels.h"

namespace halfbyte::cpu {
namespace {

constexpr std::int64_t kPrefetchBytes = 8 * kSuperblockBytes;  // ahead of the reader

// 2 * e2m1 by code, four times.
inline __m512i signed_weight_values() {
  return _mm512_broadcast_i32x4(
      _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
}

// The codes of the eight columns `line` of a superblock.
inline __m512i load_line(const std::uint8_t* superblock, int line) {
  return _mm512_loadu_si512(superblock + 64 + line * 64);
}

// The scales of a block as they lie, 2^105 too small.
inline __m512 load_scales(const std::uint8_t* superblock, int block) {
  const __m512i scales = _mm512_cvtepu8_epi32(
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(superblock + block * kPanelRows)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(scales, 20));
}

// The 16 columns of a block, four a register: bytes 4n + j; and its scales as they lie.
struct BlockWeights {
  __m512i quad[4];
  __m512 scale;
};

// `values`: of the 16 codes, four times.
inline BlockWeights load_block(const std::uint8_t* superblock, int block, __m512i values) {
  const __m512i first = load_line(superblock, block * 2);
  const __m512i second = load_line(superblock, block * 2 + 1);
  return {{_mm512_permutexvar_epi8(first, values),
           _mm512_permutexvar_epi8(_mm512_srli_epi16(first, 4), values),
           _mm512_permutexvar_epi8(second, values),
           _mm512_permutexvar_epi8(_mm512_srli_epi16(second, 4), values)},
          load_scales(superblock, block)};
}

inline void prefetch_block(const std::uint8_t* superblock, int block) {
  const auto* ahead = reinterpret_cast<const char*>(superblock + kPrefetchBytes + block * 128);
  _mm_prefetch(ahead, _MM_HINT_T0);
  _mm_prefetch(ahead + 64, _MM_HINT_T0);
  if (block == 3) _mm_prefetch(ahead + 128, _MM_HINT_T0);
}

}  // namespace
}  // namespace halfbyte::cpu

#endif  // HALFBYTE_KERNELS_CPU_INTEGER_ZMM_H_

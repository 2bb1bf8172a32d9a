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

// The 16 columns of a block, four a register: bytes 4n + j; and its scales as they lie, 2^105 too
// small.
struct BlockWeights {
  __m512i quad[4];
  __m512 scale;
};

// `values`: of the 16 codes, four times.
inline BlockWeights load_block(const std::uint8_t* superblock, int block, __m512i values) {
  const std::uint8_t* lines = superblock + 64 + block * 128;
  const __m512i first = _mm512_loadu_si512(lines);
  const __m512i second = _mm512_loadu_si512(lines + 64);
  const __m512i scales = _mm512_cvtepu8_epi32(
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(superblock + block * kPanelRows)));
  return {{_mm512_permutexvar_epi8(first, values),
           _mm512_permutexvar_epi8(_mm512_srli_epi16(first, 4), values),
           _mm512_permutexvar_epi8(second, values),
           _mm512_permutexvar_epi8(_mm512_srli_epi16(second, 4), values)},
          _mm512_castsi512_ps(_mm512_slli_epi32(scales, 20))};
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

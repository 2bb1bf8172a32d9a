// SPDX-License-Identifier: Apache-2.0
//
// Words of formats/sm90_fp8_layout.h -> E4M3 fragments.
#ifndef HALFBYTE_KERNELS_CUDA_COMMON_FP8_DECODE_CUH_
#define HALFBYTE_KERNELS_CUDA_COMMON_FP8_DECODE_CUH_

#include <cstdint>

#include "formats/sm90_fp8_layout.h"
#include "kernels/cuda/ptx/mma.cuh"

namespace halfbyte::cuda {

/// One word: eight codes of a row times the scale of `table`, as the first four and the last four.
/// The nibbles select bytes of the table; the sign bits lie where the bytes have theirs.
__device__ __forceinline__ void decode_fp8_word(std::uint32_t word,
                                                const sm90::Fp8Table& table,
                                                std::uint32_t& first,
                                                std::uint32_t& last) {
  constexpr std::uint32_t kSigns = 0x80808080U;
  constexpr int kAOrBAndC = 0xF8;
  const std::uint32_t select = word & 0x77777777U;
  first = ptx::lop3<kAOrBAndC>(ptx::permute_bytes(table.low, table.high, select), word, kSigns);
  last = ptx::lop3<kAOrBAndC>(ptx::permute_bytes(table.low, table.high, ptx::high_half(select)),
                              word << 4, kSigns);
}

/// A lane's 16 bytes of a cell: the A registers of two k32 steps of one m16 tile. Bytes 0 and 1 of
/// `scales` are those of row r and of row r + 8.
__device__ __forceinline__ void decode_fp8_tile(uint4 words,
                                                std::uint32_t scales,
                                                std::uint32_t* a) {
  const sm90::Fp8Table top = sm90::fp8_table(scales & 0xFFU);
  decode_fp8_word(words.x, top, a[0], a[2]);
  decode_fp8_word(words.y, top, a[4], a[6]);
  const sm90::Fp8Table bottom = sm90::fp8_table(scales >> 8);
  decode_fp8_word(words.z, bottom, a[1], a[3]);
  decode_fp8_word(words.w, bottom, a[5], a[7]);
}

/// The same in fp16: the A registers of four k16 steps.
__device__ __forceinline__ void decode_fp8_tile_to_f16(uint4 words,
                                                       std::uint32_t scales,
                                                       std::uint32_t* a) {
  std::uint32_t e4m3[8];
  decode_fp8_tile(words, scales, e4m3);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    // Four columns of row r (even i) or r + 8: a pair of each half of the step's columns.
    std::uint32_t* const step = a + i / 2 * 4 + i % 2;
    ptx::widen_e4m3(e4m3[i], step[0], step[2]);
  }
}

}  // namespace halfbyte::cuda

#endif  // HALFBYTE_KERNELS_CUDA_COMMON_FP8_DECODE_CUH_

// SPDX-License-Identifier: Apache-2.0
//
// NVFP4 panels times integer activations, one translation unit per instruction set. Sums of 16
// products are exact integers; what is rounded after them, and in which order, is fixed:
//
//   split15  sum over 64 columns:  s = fma(dot16, w_scale, s), from 0, blocks ascending
//            sum over the row:     total = fma(s, x_scale, total), from 0
//   int8     total = fma(dot16 * w_scale [exact], x_scale, total), from 0, blocks ascending
//
// so every instruction set gives the same bits, whatever the number of rows.
#ifndef HALFBYTE_KERNELS_CPU_INTEGER_KERNELS_H_
#define HALFBYTE_KERNELS_CPU_INTEGER_KERNELS_H_

#include <cstdint>

#include "kernels/cpu/operand_rows.h"

namespace halfbyte::cpu {

/// sums[t][0..15] = dot(x[t], row of the panel), block scales applied, without a global scale.
/// `panel` is the first of num_superblocks superblocks of one kNvfp4 panel; any num_x >= 1.
using Split15Dot = void (*)(const std::uint8_t* panel,
                            std::int64_t num_superblocks,
                            const Split15Record* const* x,
                            int num_x,
                            float* sums);
using Int8Dot = void (*)(const std::uint8_t* panel,
                         std::int64_t num_superblocks,
                         const Int8Record* const* x,
                         int num_x,
                         float* sums);

#define HALFBYTE_DECLARE_INTEGER_KERNELS(isa)                                     \
  void split15_dot_##isa(const std::uint8_t* panel, std::int64_t num_superblocks, \
                         const Split15Record* const* x, int num_x, float* sums);  \
  void int8_dot_##isa(const std::uint8_t* panel, std::int64_t num_superblocks,    \
                      const Int8Record* const* x, int num_x, float* sums)
HALFBYTE_DECLARE_INTEGER_KERNELS(portable);
HALFBYTE_DECLARE_INTEGER_KERNELS(avx2);
HALFBYTE_DECLARE_INTEGER_KERNELS(avx_vnni);
HALFBYTE_DECLARE_INTEGER_KERNELS(avx512);
HALFBYTE_DECLARE_INTEGER_KERNELS(amx);
#undef HALFBYTE_DECLARE_INTEGER_KERNELS

/// The quantisers of operand_rows.h, the same bits.
void quantize_split15_avx2(const float* x, std::int64_t cols, Split15Record* row);
void quantize_int8_avx2(const float* x, std::int64_t cols, Int8Record* row);
void quantize_nvfp4_avx2(const float* x, std::int64_t cols, float s, Int8Record* row);

}  // namespace halfbyte::cpu

#endif  // HALFBYTE_KERNELS_CPU_INTEGER_KERNELS_H_

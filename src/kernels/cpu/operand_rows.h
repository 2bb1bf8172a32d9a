// SPDX-License-Identifier: Apache-2.0
//
// A row of activations as the integer kernels read it: one record per 64 columns, in the order in
// which a panel's superblocks pass. Columns past a row's end are zeros, which multiply the zeros
// that pad the panel.
//
// Kernels of 8-bit products multiply with 2 * e2m1 + 12, which is never negative, so a record also
// holds what 12 times its values must be taken back by. Those of 16-bit products need no such
// thing.
#ifndef HALFBYTE_KERNELS_CPU_OPERAND_ROWS_H_
#define HALFBYTE_KERNELS_CPU_OPERAND_ROWS_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/checked.h"
#include "kernels/cpu/panel_layout.h"

namespace halfbyte::cpu {

inline constexpr std::int32_t kWeightOffset = 12;  // added to 2 * e2m1
/// The bits of 1.5 * 2^23. An integer below 2^22 in magnitude added to them is, read as a float,
/// that number plus the integer: an exact sum becomes a float without being converted.
inline constexpr std::int32_t kFloatBias = 0x4B400000;
inline constexpr float kFloatBiasValue = std::bit_cast<float>(kFloatBias);

/// split15: x = q * amax / 16256 with the amax of 64 columns and q = 128 * high + low. It is there
/// twice, for products of 8 and of 16 bits; a kernel reads one of them and the scale between them.
struct Split15Record {
  std::int8_t low[kSuperblockCols];   // -64 .. 63
  std::int8_t high[kSuperblockCols];  // -127 .. 127
  std::int32_t correction[4];         // of 16 columns each: -12 * sum of q
  float scale;                        // amax / 16256 / 2: the weights count halves
  float unused[3];
  std::int16_t q[kSuperblockCols];  // -16256 .. 16256, where split15_q_position() says
};
static_assert(sizeof(Split15Record) == 288);

/// Where column `col` of 64 lies in Split15Record::q: columns 0 2 1 3 of every four. Four bytes of
/// a panel's line are a row's four columns; the even two become one pair of words to multiply,
/// where they lie, and the odd two another.
constexpr std::int64_t split15_q_position(std::int64_t col) {
  return col - col % 4 + col % 2 * 2 + col % 4 / 2;
}

/// int8: x = q * scale, a scale per 16 columns; holds NVFP4 activations exactly (q = 2 * e2m1).
struct Int8Record {
  std::int8_t q[kSuperblockCols];
  // kFloatBias - 12 * sum of q over 16 columns
  std::int32_t start[4] = {kFloatBias, kFloatBias, kFloatBias, kFloatBias};
  float scale[4];  // halved: the weights count halves
};
static_assert(sizeof(Int8Record) == 96);

constexpr std::int64_t num_records(std::int64_t cols) {
  return ceil_div(cols, kSuperblockCols);
}

/// Rows whose largest magnitude is below this are zero, as in w4a4_dynamic.
inline constexpr float kSmallestAmax = 0x1p-100F;
inline constexpr float kSplit15Max = 16256.0F;  // 127 * 128
inline constexpr float kInt8Max = 127.0F;

/// The integer forms of x [cols] (cols % 16 == 0) in plain C++; every instruction set gives these
/// bits. q = rint(RN(x * RN(max / amax))). A group that holds a NaN or an infinity gets a NaN for
/// its scale and so makes its row's sums NaN.
void quantize_split15(const float* x, std::int64_t cols, Split15Record* row);
void quantize_int8(const float* x, std::int64_t cols, Int8Record* row);

/// x as NVFP4 activations with the decode-side scale s (quantize_activations of formats/nvfp4.h),
/// without that scalar; exact.
void quantize_nvfp4(const float* x, std::int64_t cols, float s, Int8Record* row);

/// One row of NVFP4 activations that were quantised before; exact.
void int8_from_nvfp4(const std::uint8_t* codes,
                     const std::uint8_t* block_scale,
                     std::int64_t cols,
                     Int8Record* row);

}  // namespace halfbyte::cpu

#endif  // HALFBYTE_KERNELS_CPU_OPERAND_ROWS_H_

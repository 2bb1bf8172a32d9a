// SPDX-License-Identifier: Apache-2.0
//
// Where NVFP4 weights lie for the sm_90 kernels of mode w4a8, which turn code and block scale into
// one E4M3 value: the cells and slabs of formats/sm90_layout.h with columns padded to 128, other
// words and other scale bytes.
//
//   codes   byte mt * 512 + lane * 16 + (2 * hi + step) * 4 of a cell, lane = 4 * r + q: row
//           mt * 16 + hi * 8 + r, the eight columns 16 * q + 8 * step .. + 7, as the tensor core's
//           k32 step `step` takes them
//   scales  as in formats/sm90_layout.h
//
// A row is multiplied with a power of two first, so that its largest block scale is an E4M3 code
// from 98 to 105; its inverse goes into the row's factor. Down to code 16 every product with a code
// is then a normal E4M3 number, found by arithmetic on the scale's code alone.
#ifndef HALFBYTE_FORMATS_SM90_FP8_LAYOUT_H_
#define HALFBYTE_FORMATS_SM90_FP8_LAYOUT_H_

#include <cstdint>

#include "formats/sm90_layout.h"

namespace halfbyte::sm90 {

inline constexpr const char* kFp8LayoutName = "sm90_fp8_fragment_128x128";
inline constexpr int kFp8LayoutVersion = 1;  // changes when a bit moves

/// Columns of a block of activations, and of a pipeline stage.
inline constexpr int kFp8BlockCols = 128;
inline constexpr int kFp8MinScale = 16;
inline constexpr int kFp8MaxScale = 105;

HALFBYTE_HOST_DEVICE constexpr WeightLayout fp8_layout(const WeightShape& shape) {
  return {shape, kFp8BlockCols};
}

/// Where a code lies: its word, and which of the word's eight codes it is.
HALFBYTE_HOST_DEVICE constexpr CodeWord locate_fp8_code(const WeightLayout& layout,
                                                        const Element& element) {
  const std::int64_t row = stored_row(layout.shape.num_halves, element.half, element.row);
  const std::int64_t lane = row % 8 * 4 + element.col % 64 / 16;
  const std::int64_t word = row % 16 / 8 * 2 + element.col % 16 / 8;
  return {cell_offset(layout, element.expert_idx, row, element.col) + row % kCellRows / 16 * 512 +
              lane * 16 + word * 4,
          static_cast<int>(element.col % 8)};
}

/// The bits of a word that hold `value` (an E2M1 code) as its code number `code`: the magnitude in
/// nibble `code`, which selects a byte of the table; the sign where the byte's sign will be, or
/// four bits below.
HALFBYTE_HOST_DEVICE constexpr std::uint32_t place_fp8_code(int code, unsigned value) {
  const int sign = code < 4 ? 8 * code + 7 : 8 * (code - 4) + 3;
  return (value & 7U) << (4 * code) | (value >> 3 & 1U) << sign;
}
HALFBYTE_HOST_DEVICE constexpr unsigned read_fp8_code(std::uint32_t word, int code) {
  const int sign = code < 4 ? 8 * code + 7 : 8 * (code - 4) + 3;
  return (word >> (4 * code) & 7U) | (word >> sign & 1U) << 3;
}

/// The element of code 0 of the word at `byte`, or of the scale there.
HALFBYTE_HOST_DEVICE constexpr ByteOwner fp8_owner_of(const WeightLayout& layout,
                                                      std::int64_t byte) {
  ByteOwner owner = owner_of(layout, byte);
  if (owner.is_scale) return owner;
  // Of a lane's four words, two are eight columns on, and two eight rows.
  const std::int64_t word = byte % kCellBytes % 16 / 4;
  const Element first = code_element(layout, owner.element, static_cast<int>(word / 2) * 4);
  owner.element = first;
  owner.element.col = first.col / 16 * 16 + word % 2 * 8;
  return owner;
}

/// An E4M3 code (sign 0, finite, not zero) as an integer that grows by 8 with each factor of two,
/// below the normal numbers as well.
HALFBYTE_HOST_DEVICE constexpr int scale_level(std::uint8_t e4m3) {
  return encode_scale(e4m3) - 112;
}

/// p of a row whose largest block scale is `max_scale`: the largest with
/// 6 * max_scale * 2^p <= 448; 0 without any.
HALFBYTE_HOST_DEVICE constexpr int fold_exponent(std::uint8_t max_scale) {
  if (max_scale == 0) return 0;
  const int room = kFp8MaxScale - scale_level(max_scale);
  return room >= 0 ? room / 8 : -((7 - room) / 8);
}

/// A block scale of a row with exponent p, as stored: its E4M3 code, and in bit 7 whether 1.5 times
/// it is rounded up.
struct FoldedScale {
  std::uint8_t byte = 0;
  int steps_below = 0;  // of kFp8MinScale, in levels; 0: every product is as E4M3 rounds it
};
HALFBYTE_HOST_DEVICE constexpr FoldedScale fold_scale(std::uint8_t e4m3, int exponent) {
  if (e4m3 == 0) return {kFp8MinScale, 0};
  const int level = scale_level(e4m3) + 8 * exponent;
  if (level < kFp8MinScale) return {kFp8MinScale, kFp8MinScale - level};
  const bool up = level % 8 >= 1 && level % 8 <= 5;
  return {static_cast<std::uint8_t>(level | (up ? 128 : 0)), 0};
}

/// The code whose product with scale kFp8MinScale is nearest to `code` times the scale
/// `steps_below` levels below it; ties to the even code.
HALFBYTE_HOST_DEVICE constexpr unsigned fold_code(unsigned code, int steps_below) {
  if (steps_below == 0) return code;
  constexpr float kMagnitude[8] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  const int level = 1024 - steps_below;  // 1024 stands for a ratio of one
  float ratio = static_cast<float>(8 + level % 8) / 8.0F;
  for (int octave = level / 8; octave < 128; ++octave)
    ratio *= 0.5F;
  const float m = kMagnitude[code & 7U] * ratio;
  const int nearest = (m > 0.25F) + (m >= 0.75F) + (m > 1.25F) + (m >= 1.75F) + (m > 2.5F) +
                      (m >= 3.5F) + (m > 5.0F);
  return static_cast<unsigned>(nearest) | (code & 8U);
}

/// The E4M3 codes of a stored scale times the magnitudes 0, 0.5, 1, 1.5 (`low`, a byte each) and
/// 2, 3, 4, 6 (`high`). A code is its neighbour octave's plus or minus 8, so sums do it.
struct Fp8Table {
  std::uint32_t low = 0, high = 0;
};
HALFBYTE_HOST_DEVICE constexpr Fp8Table fp8_table(std::uint32_t byte) {
  const std::uint32_t up = byte >> 7;
  return {byte * 0x01010100U + 0x03FFF800U + up * (0x01000000U - 0x80808000U),
          byte * 0x01010101U + 0x14100C08U + up * (0x01000100U - 0x80808080U)};
}

}  // namespace halfbyte::sm90

#endif  // HALFBYTE_FORMATS_SM90_FP8_LAYOUT_H_

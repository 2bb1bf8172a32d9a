// SPDX-License-Identifier: Apache-2.0
//
// Where NVFP4 weights lie for the sm_90 kernels: in the order of the tensor core's A fragments, the
// same for decode (mma.sync) and prefill (wgmma with A in registers). docs/performance-sm90.md has
// the measurements behind it.
//
// A matrix [rows, cols] of one expert is cut into cells of 32 rows x 64 columns, 1152 bytes: 1024
// of codes, then 128 of scales. The four cells of 128 rows lie one below the other (a slab, 4608
// bytes), the slabs of 128 rows one after the other along the columns: a tile of 128 rows is one
// sequential stream, and its columns of a pipeline stage are one copy.
//
//   codes   byte mt * 512 + lane * 16 + step * 4: one 32-bit word with 8 codes, of the 16-row tile
//           mt, for lane = 4 * r + q and the tensor core's k16 step; it holds rows r and r + 8 and
//           the columns 16 * q + 4 * step .. + 3 of the cell
//   scales  byte 1024 + lane * 4 + mt * 2 + hi: of row mt * 16 + hi * 8 + r, columns 16 * q .. + 15
//
// So a lane needs one scale a row and cell, and its B values are 32 contiguous bytes of a token.
// Gate and up of a feature are rows r and r + 8: they meet in one thread.
#ifndef HALFBYTE_FORMATS_SM90_LAYOUT_H_
#define HALFBYTE_FORMATS_SM90_LAYOUT_H_

#include <cstdint>

#include "formats/host_device.h"

namespace halfbyte::sm90 {

inline constexpr const char* kLayoutName = "sm90_fragment_128x64";
inline constexpr int kLayoutVersion = 2;  // changes when a bit moves

inline constexpr int kCellRows = 32;
inline constexpr int kCellCols = 64;
inline constexpr int kCellScaleBytes = kCellRows * kCellCols / 16;
inline constexpr int kCellCodeBytes = kCellRows * kCellCols / 2;
inline constexpr int kCellBytes = kCellCodeBytes + kCellScaleBytes;
inline constexpr int kRowAlignment = 128;  // rows of an expert's matrix, gate and up together
inline constexpr int kSlabCells = kRowAlignment / kCellRows;
inline constexpr int kSlabBytes = kSlabCells * kCellBytes;

/// The same matrix of every expert. Gated gate_up has two halves of intermediate_size rows; down,
/// and gate_up of a non-gated expert, one.
struct WeightShape {
  std::int64_t num_experts = 0;
  int num_halves = 1;
  std::int64_t half_rows = 0;
  std::int64_t cols = 0;  // a multiple of 16
  bool operator==(const WeightShape&) const = default;
};

/// Padded sizes: each half to 64 rows (128 when there is one half), columns to `col_unit`.
struct WeightLayout {
  WeightShape shape;
  std::int64_t col_unit = kCellCols;  // a multiple of kCellCols

  HALFBYTE_HOST_DEVICE constexpr std::int64_t padded_half_rows() const {
    const std::int64_t unit = kRowAlignment / shape.num_halves;
    return (shape.half_rows + unit - 1) / unit * unit;
  }
  HALFBYTE_HOST_DEVICE constexpr std::int64_t rows() const {
    return shape.num_halves * padded_half_rows();
  }
  HALFBYTE_HOST_DEVICE constexpr std::int64_t padded_cols() const {
    return (shape.cols + col_unit - 1) / col_unit * col_unit;
  }
  HALFBYTE_HOST_DEVICE constexpr std::int64_t row_cells() const { return rows() / kCellRows; }
  HALFBYTE_HOST_DEVICE constexpr std::int64_t col_cells() const {
    return padded_cols() / kCellCols;
  }
  HALFBYTE_HOST_DEVICE constexpr std::int64_t bytes_per_expert() const {
    return row_cells() * col_cells() * kCellBytes;
  }
  HALFBYTE_HOST_DEVICE constexpr std::int64_t bytes() const {
    return shape.num_experts * bytes_per_expert();
  }
};

/// A padded element: of half `half` (0 gate or the only one, 1 up), row `row` of that half.
struct Element {
  std::int64_t expert_idx = 0;
  int half = 0;
  std::int64_t row = 0;
  std::int64_t col = 0;  // of a scale: the first of its 16 columns
  bool operator==(const Element&) const = default;
};

/// Gate row r of a group of 8 lies in row r, its up row in r + 8.
HALFBYTE_HOST_DEVICE constexpr std::int64_t stored_row(int num_halves, int half, std::int64_t row) {
  return num_halves == 1 ? row : row / 8 * 16 + half * 8 + row % 8;
}

/// First byte of the cell with stored row `row` and column `col`.
HALFBYTE_HOST_DEVICE constexpr std::int64_t cell_offset(const WeightLayout& layout,
                                                        std::int64_t expert_idx,
                                                        std::int64_t row,
                                                        std::int64_t col) {
  const std::int64_t row_cell = expert_idx * layout.row_cells() + row / kCellRows;
  const std::int64_t slab = row_cell / kSlabCells * layout.col_cells() + col / kCellCols;
  return (slab * kSlabCells + row_cell % kSlabCells) * kCellBytes;
}

/// Where a code lies: its 32-bit word, and which of the word's codes it is (0..7, two a pair).
struct CodeWord {
  std::int64_t byte = 0;
  int code = 0;
  bool operator==(const CodeWord&) const = default;
};
HALFBYTE_HOST_DEVICE constexpr CodeWord locate_code(const WeightLayout& layout,
                                                    const Element& element) {
  const std::int64_t row = stored_row(layout.shape.num_halves, element.half, element.row);
  const std::int64_t in_tile = row % 16;
  const std::int64_t lane = in_tile % 8 * 4 + element.col % 64 / 16;
  const std::int64_t byte = row % kCellRows / 16 * 512 + lane * 16 + element.col % 16 / 4 * 4;
  return {cell_offset(layout, element.expert_idx, row, element.col) + byte,
          static_cast<int>(in_tile / 8 * 4 + element.col % 4)};
}

/// Bits of a code in its word: sign, then the magnitude's bits 2, 1, 0. Codes 2p and 2p + 1 are the
/// lower and upper half of a register that the decoder makes with few instructions.
struct CodeBits {
  std::uint8_t bit[4] = {};
};
HALFBYTE_HOST_DEVICE constexpr CodeBits code_bits(int code) {
  constexpr std::uint8_t kFirst[4][4] = {
      {15, 8, 7, 6}, {18, 11, 10, 9}, {21, 14, 13, 12}, {3, 1, 0, 4}};
  CodeBits bits;
  for (int i = 0; i < 4; ++i)
    bits.bit[i] = static_cast<std::uint8_t>((kFirst[code / 2][i] + code % 2 * 16) % 32);
  return bits;
}

/// The bits of a word that hold `value` (an E2M1 code) as its code number `code`.
HALFBYTE_HOST_DEVICE constexpr std::uint32_t place_code(int code, unsigned value) {
  const CodeBits bits = code_bits(code);
  std::uint32_t word = 0;
  for (int i = 0; i < 4; ++i)
    word |= static_cast<std::uint32_t>((value >> (3 - i)) & 1U) << bits.bit[i];
  return word;
}
HALFBYTE_HOST_DEVICE constexpr unsigned read_code(std::uint32_t word, int code) {
  const CodeBits bits = code_bits(code);
  unsigned value = 0;
  for (int i = 0; i < 4; ++i)
    value |= (word >> bits.bit[i] & 1U) << (3 - i);
  return value;
}

/// Byte of the block scale that holds for the element's 16 columns.
HALFBYTE_HOST_DEVICE constexpr std::int64_t locate_scale(const WeightLayout& layout,
                                                         const Element& element) {
  const std::int64_t row = stored_row(layout.shape.num_halves, element.half, element.row);
  const std::int64_t lane = row % 8 * 4 + element.col % 64 / 16;
  return cell_offset(layout, element.expert_idx, row, element.col) + kCellCodeBytes + lane * 4 +
         row % kCellRows / 8;
}

/// E4M3 (sign 0, finite) -> a byte b with value (1 + b % 8 / 8) * 2^(b / 8 - 21); 0 stays 0.
/// Subnormals become normal; the 126 others lie in 96..238. As bf16, 0x7000 | b << 4 is the scale
/// times 2^118.
HALFBYTE_HOST_DEVICE constexpr std::uint8_t encode_scale(std::uint8_t e4m3) {
  if (e4m3 == 0) return 0;
  int exponent = e4m3 >> 3;
  int mantissa = e4m3 & 7;
  if (exponent == 0) {
    exponent = 1;
    for (; (mantissa & 8) == 0; mantissa <<= 1)
      --exponent;
    mantissa &= 7;
  }
  return static_cast<std::uint8_t>((exponent + 14) * 8 + mantissa);
}
HALFBYTE_HOST_DEVICE constexpr std::uint8_t decode_scale(std::uint8_t byte) {
  if (byte == 0) return 0;
  const int exponent = byte / 8 - 14;
  const int mantissa = byte % 8;
  if (exponent > 0) return static_cast<std::uint8_t>(exponent * 8 + mantissa);
  return static_cast<std::uint8_t>((mantissa | 8) >> (1 - exponent));
}

/// Inverse of locate_code and locate_scale: what a byte of the experts' array belongs to. Of codes,
/// the element of the word's code 0; code_element gives the others.
struct ByteOwner {
  bool is_scale = false;
  Element element;
};
HALFBYTE_HOST_DEVICE constexpr Element element_of(const WeightLayout& layout,
                                                  std::int64_t expert_idx,
                                                  std::int64_t row,
                                                  std::int64_t col) {
  if (layout.shape.num_halves == 1) return {expert_idx, 0, row, col};
  return {expert_idx, static_cast<int>(row % 16 / 8), row / 16 * 8 + row % 8, col};
}
HALFBYTE_HOST_DEVICE constexpr ByteOwner owner_of(const WeightLayout& layout, std::int64_t byte) {
  const std::int64_t cell = byte / kCellBytes;
  const std::int64_t within = byte % kCellBytes;
  const std::int64_t slab = cell / kSlabCells;
  const std::int64_t row_cell = slab / layout.col_cells() * kSlabCells + cell % kSlabCells;
  const std::int64_t expert_idx = row_cell / layout.row_cells();
  const bool is_scale = within >= kCellCodeBytes;
  const std::int64_t in_part = is_scale ? within - kCellCodeBytes : within;
  const std::int64_t lane = is_scale ? in_part / 4 : in_part % 512 / 16;
  const std::int64_t eight = is_scale ? in_part % 4 : in_part / 512 * 2;
  const std::int64_t row = row_cell % layout.row_cells() * kCellRows + eight * 8 + lane / 4;
  const std::int64_t step = is_scale ? 0 : in_part % 16 / 4;
  const std::int64_t col = slab % layout.col_cells() * kCellCols + lane % 4 * 16 + step * 4;
  return {is_scale, element_of(layout, expert_idx, row, col)};
}
/// The element of code `code` of a word whose code 0 is `first`.
HALFBYTE_HOST_DEVICE constexpr Element code_element(const WeightLayout& layout,
                                                    const Element& first,
                                                    int code) {
  const std::int64_t row = stored_row(layout.shape.num_halves, first.half, first.row);
  return element_of(layout, first.expert_idx, row + code / 4 * 8, first.col + code % 4);
}

}  // namespace halfbyte::sm90

#endif  // HALFBYTE_FORMATS_SM90_LAYOUT_H_

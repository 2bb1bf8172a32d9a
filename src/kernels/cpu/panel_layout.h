// SPDX-License-Identifier: Apache-2.0
//
// How the CPU kernels' weights lie in memory: panels of 16 output rows, read front to back.
//
//   kNvfp4  per 64 columns one superblock of 576 bytes: 64 block scales (4 blocks x 16 rows,
//   UE5M3),
//           then 8 lines of 64 bytes; byte 4n + j of a line holds row n, column j in its low nibble
//           and column 4 + j in its high nibble. A line covers 8 columns.
//   kFp8    the panel's scales, 16 fp32 per group of scale columns, then 16 bytes per column
//   kBf16   64 bytes per pair of columns: 32-bit words of 16 rows, the even column in the low half
//   kF16    16 halves per column
//   kF32    16 floats per column
//
// Columns are padded to whole superblocks (kNvfp4) or to 16, rows to 16, with zero bytes.
#ifndef HALFBYTE_KERNELS_CPU_PANEL_LAYOUT_H_
#define HALFBYTE_KERNELS_CPU_PANEL_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "base/checked.h"
#include "halfbyte/moe.h"

namespace halfbyte::cpu {

inline constexpr std::int64_t kPanelRows = 16;
inline constexpr std::int64_t kLineCols = 8;    // columns that are summed before they are scaled
inline constexpr std::int64_t kScaleCols = 16;  // columns of one NVFP4 block
inline constexpr std::int64_t kSuperblockCols = 64;  // of kNvfp4
inline constexpr std::int64_t kSuperblockBytes = 576;
inline constexpr const char* kPanelLayoutName = "cpu_panel16 v1";

/// What the layout of one matrix depends on.
struct PanelShape {
  WeightFormat format = WeightFormat::kNvfp4;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t scale_block_cols = 0;  // kFp8 only: a multiple of 16, or at least cols

  constexpr std::int64_t num_panels() const { return ceil_div(rows, kPanelRows); }
  constexpr std::int64_t num_scale_groups() const {
    return format == WeightFormat::kFp8 ? ceil_div(cols, scale_block_cols) : 0;
  }
  constexpr std::int64_t scale_bytes() const {
    return num_scale_groups() * kPanelRows * static_cast<std::int64_t>(sizeof(float));
  }
  /// Bytes of 16 rows; a multiple of 64.
  constexpr std::int64_t panel_bytes() const {
    const std::int64_t padded = round_up(cols, 16) * kPanelRows;
    switch (format) {
      case WeightFormat::kNvfp4:
        return ceil_div(cols, kSuperblockCols) * kSuperblockBytes;
      case WeightFormat::kFp8:
        return scale_bytes() + padded;
      case WeightFormat::kBf16:
      case WeightFormat::kF16:
        return padded * 2;
      case WeightFormat::kF32:
        return padded * 4;
    }
    return 0;
  }
};

/// E4M3 (sign bit clear, not NaN) as UE5M3, exponent bias 22: lossless, and never a denormal once
/// it is shifted into an fp32. Zero stays 0.
constexpr std::uint8_t e4m3_to_ue5m3(std::uint8_t bits) {
  constexpr std::uint8_t kSubnormals[8] = {0, 104, 112, 116, 120, 122, 124, 126};
  return static_cast<std::uint8_t>(bits < 8 ? kSubnormals[bits] : bits + 120);
}

/// Where one NVFP4 code lies inside its matrix.
struct CodePosition {
  std::int64_t byte = 0;
  bool high_nibble = false;
  bool operator==(const CodePosition&) const = default;
};

constexpr CodePosition locate_panel_code(const PanelShape& shape,
                                         std::int64_t row,
                                         std::int64_t col) {
  const std::int64_t superblock =
      row / kPanelRows * shape.panel_bytes() + col / kSuperblockCols * kSuperblockBytes;
  const std::int64_t line = col % kSuperblockCols / kLineCols;
  return {.byte = superblock + 64 + line * 64 + row % kPanelRows * 4 + col % 4,
          .high_nibble = col % kLineCols >= 4};
}

/// Byte of the block scale of (row, col / 16).
constexpr std::int64_t locate_panel_scale(const PanelShape& shape,
                                          std::int64_t row,
                                          std::int64_t block) {
  return row / kPanelRows * shape.panel_bytes() + block / 4 * kSuperblockBytes +
         block % 4 * kPanelRows + row % kPanelRows;
}

/// Byte of the first (or only) byte of an element of the other formats.
constexpr std::int64_t locate_panel_element(const PanelShape& shape,
                                            std::int64_t row,
                                            std::int64_t col) {
  const std::int64_t panel = row / kPanelRows * shape.panel_bytes();
  const std::int64_t lane = row % kPanelRows;
  switch (shape.format) {
    case WeightFormat::kFp8:
      return panel + shape.scale_bytes() + col * kPanelRows + lane;
    case WeightFormat::kBf16:
      return panel + (col / 2 * kPanelRows + lane) * 4 + col % 2 * 2;
    case WeightFormat::kF16:
      return panel + (col * kPanelRows + lane) * 2;
    default:
      return panel + (col * kPanelRows + lane) * 4;
  }
}

}  // namespace halfbyte::cpu

#endif  // HALFBYTE_KERNELS_CPU_PANEL_LAYOUT_H_

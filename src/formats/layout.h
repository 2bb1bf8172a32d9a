// SPDX-License-Identifier: Apache-2.0
//
// Where the codes and block scales of NVFP4 weights lie (docs/formats.md). A layout is a value: an
// enumerator, the shape it was made for, and index functions both ways, used by packers, kernels
// and tests alike. Adding one: an enumerator, its line in kAllLayouts, its cases below; the
// bijection test picks it up.
//
// Three kinds of coordinates, all 64-bit:
//   canonical  row in [0, rows), gate half first; col in [0, cols)
//   padded     each half padded by itself, then col; the domain of the bijection
//   stored     byte (and nibble) inside the experts' array
#ifndef HALFBYTE_FORMATS_LAYOUT_H_
#define HALFBYTE_FORMATS_LAYOUT_H_

#include <cstdint>

#include "formats/host_device.h"
#include "halfbyte/result.h"

namespace halfbyte {

/// Stable numbers; add at the end.
enum class DataLayout : std::int32_t {
  kLinear = 0,              // codes and scales row-major, gate rows first: the canonical form
  kBlocked128x4 = 1,        // codes as kLinear; scales in 512-byte blocks of 128 rows x 4 scales
  kGateUpInterleave64 = 2,  // rows in blocks of 64: up, gate, up, gate; scales row-major
  kGateUpInterleave64Blocked128x4 = 3,  // those rows, scales blocked: gate_up of cuda_sm100
  kGateUpPairs = 4,                     // rows g0, u0, g1, u1, ..; scales row-major
};

inline constexpr DataLayout kAllLayouts[] = {
    DataLayout::kLinear,
    DataLayout::kBlocked128x4,
    DataLayout::kGateUpInterleave64,
    DataLayout::kGateUpInterleave64Blocked128x4,
    DataLayout::kGateUpPairs,
};

struct LayoutInfo {
  const char* name = "";
  int version = 0;                      // changes when a byte moves
  std::int64_t half_row_alignment = 1;  // rows of each half (gate, up) are padded to this
  std::int64_t scale_row_alignment = 1;
  std::int64_t scale_col_alignment = 1;
};

HALFBYTE_HOST_DEVICE constexpr LayoutInfo layout_info(DataLayout layout) {
  switch (layout) {
    case DataLayout::kLinear:
      return {"linear", 1, 1, 1, 1};
    case DataLayout::kBlocked128x4:
      return {"blocked_128x4", 1, 1, 128, 4};
    case DataLayout::kGateUpInterleave64:
      return {"gate_up_interleave_64", 1, 64, 1, 1};
    case DataLayout::kGateUpInterleave64Blocked128x4:
      return {"gate_up_interleave_64_blocked_128x4", 1, 64, 128, 4};
    case DataLayout::kGateUpPairs:
      return {"gate_up_pairs", 1, 1, 1, 1};
  }
  return {};
}

/// What a layout holds: the same matrix of every expert. gate_up has two halves of
/// intermediate_size rows; down and the up matrix of a non-gated expert have one.
struct WeightShape {
  std::int64_t num_experts = 1;
  std::int64_t num_halves = 1;  // 1 or 2
  std::int64_t half_rows = 0;
  std::int64_t cols = 0;  // a multiple of 16
};

/// A layout made for a shape; the only source of strides and sizes. Make one with make_layout.
struct WeightLayout {
  DataLayout layout = DataLayout::kLinear;
  WeightShape shape;
  std::int64_t padded_half_rows = 0;
  std::int64_t padded_cols = 0;
  std::int64_t scale_rows = 0;  // padded, per expert
  std::int64_t scale_cols = 0;

  HALFBYTE_HOST_DEVICE constexpr std::int64_t rows() const {
    return shape.num_halves * shape.half_rows;
  }
  HALFBYTE_HOST_DEVICE constexpr std::int64_t code_rows() const {
    return shape.num_halves * padded_half_rows;
  }
  HALFBYTE_HOST_DEVICE constexpr std::int64_t code_bytes_per_expert() const {
    return code_rows() * (padded_cols / 2);
  }
  HALFBYTE_HOST_DEVICE constexpr std::int64_t scale_bytes_per_expert() const {
    return scale_rows * scale_cols;
  }
  HALFBYTE_HOST_DEVICE constexpr std::int64_t code_bytes() const {
    return shape.num_experts * code_bytes_per_expert();
  }
  HALFBYTE_HOST_DEVICE constexpr std::int64_t scale_bytes() const {
    return shape.num_experts * scale_bytes_per_expert();
  }
};

/// Padding a backend wants beyond what the layout needs: rows of each half, and columns (codes and
/// scales of `down` follow the padding of gate and up).
struct LayoutPadding {
  std::int64_t half_row_alignment = 1;
  std::int64_t col_alignment = 16;  // a multiple of 16
};

/// @return kInvalidArgument: cols not a multiple of 16, a negative size, more than two halves, a
///         col_alignment that is not a multiple of 16, or a gate and up order asked of one half.
Result<WeightLayout> make_layout(DataLayout layout, WeightShape shape, LayoutPadding padding = {});

/// Where a code lies: the byte, and 0 (low nibble) or 4 (high).
struct CodeLocation {
  std::int64_t byte = 0;
  int shift = 0;
  bool operator==(const CodeLocation&) const = default;
};

/// What a code or a scale belongs to. Padding has the expert and padded coordinates only.
struct LayoutElement {
  bool is_padding = true;
  std::int64_t expert_idx = 0;
  std::int64_t row = 0;  // canonical; padded if is_padding
  std::int64_t col = 0;  // of a code: column; of a scale: group of 16 columns
  bool operator==(const LayoutElement&) const = default;
};

namespace layout_detail {

HALFBYTE_HOST_DEVICE constexpr bool interleaves_64(DataLayout layout) {
  return layout == DataLayout::kGateUpInterleave64 ||
         layout == DataLayout::kGateUpInterleave64Blocked128x4;
}

HALFBYTE_HOST_DEVICE constexpr bool blocks_scales(DataLayout layout) {
  return layout == DataLayout::kBlocked128x4 ||
         layout == DataLayout::kGateUpInterleave64Blocked128x4;
}

/// Canonical row -> padded row.
HALFBYTE_HOST_DEVICE constexpr std::int64_t pad_row(const WeightLayout& layout, std::int64_t row) {
  return row < layout.shape.half_rows ? row
                                      : row - layout.shape.half_rows + layout.padded_half_rows;
}

/// Padded row -> canonical row, or -1.
HALFBYTE_HOST_DEVICE constexpr std::int64_t unpad_row(const WeightLayout& layout,
                                                      std::int64_t padded_row) {
  const bool second = padded_row >= layout.padded_half_rows;
  const std::int64_t in_half = second ? padded_row - layout.padded_half_rows : padded_row;
  if (in_half >= layout.shape.half_rows || padded_row >= layout.code_rows()) return -1;
  return second ? layout.shape.half_rows + in_half : in_half;
}

}  // namespace layout_detail

/// Rows of 64-row blocks: even blocks are up, odd ones gate. Canonical row r (gate first, each half
/// of `half_rows`, a multiple of 64) lies in row interleave_row_64(r).
HALFBYTE_HOST_DEVICE constexpr std::int64_t interleave_row_64(std::int64_t row,
                                                              std::int64_t half_rows) {
  const bool gate = row < half_rows;
  const std::int64_t in_half = gate ? row : row - half_rows;
  return in_half / 64 * 128 + (gate ? 64 : 0) + in_half % 64;
}
HALFBYTE_HOST_DEVICE constexpr std::int64_t deinterleave_row_64(std::int64_t stored_row,
                                                                std::int64_t half_rows) {
  const std::int64_t block = stored_row / 64;
  return (1 - block % 2) * half_rows + block / 2 * 64 + stored_row % 64;
}

/// Rows g0, u0, g1, u1, ..: canonical row r (gate first) lies in row pair_row(r).
HALFBYTE_HOST_DEVICE constexpr std::int64_t pair_row(std::int64_t row, std::int64_t half_rows) {
  return row < half_rows ? 2 * row : 2 * (row - half_rows) + 1;
}
HALFBYTE_HOST_DEVICE constexpr std::int64_t unpair_row(std::int64_t stored_row,
                                                       std::int64_t half_rows) {
  return stored_row % 2 * half_rows + stored_row / 2;
}

/// Byte of scale (row, col) in 512-byte blocks of 128 rows x 4 scales; num_block_cols = padded
/// columns / 4.
HALFBYTE_HOST_DEVICE constexpr std::int64_t blocked_128x4_offset(std::int64_t row,
                                                                 std::int64_t col,
                                                                 std::int64_t num_block_cols) {
  const std::int64_t block = row / 128 * num_block_cols + col / 4;
  return block * 512 + row % 32 * 16 + row % 128 / 32 * 4 + col % 4;
}

struct ScaleCoordinate {
  std::int64_t row = 0;
  std::int64_t col = 0;
  bool operator==(const ScaleCoordinate&) const = default;
};
HALFBYTE_HOST_DEVICE constexpr ScaleCoordinate blocked_128x4_coordinate(
    std::int64_t offset, std::int64_t num_block_cols) {
  const std::int64_t block = offset / 512;
  const std::int64_t within = offset % 512;
  return {block / num_block_cols * 128 + within % 16 / 4 * 32 + within / 16,
          block % num_block_cols * 4 + within % 4};
}

namespace layout_detail {

/// Padded row -> stored row. Rows past the halves (padding of scales) stay in place.
HALFBYTE_HOST_DEVICE constexpr std::int64_t store_row(const WeightLayout& layout,
                                                      std::int64_t padded_row) {
  if (layout.shape.num_halves != 2 || padded_row >= layout.code_rows()) return padded_row;
  if (interleaves_64(layout.layout)) return interleave_row_64(padded_row, layout.padded_half_rows);
  if (layout.layout == DataLayout::kGateUpPairs)
    return pair_row(padded_row, layout.padded_half_rows);
  return padded_row;
}

HALFBYTE_HOST_DEVICE constexpr std::int64_t unstore_row(const WeightLayout& layout,
                                                        std::int64_t stored_row) {
  if (layout.shape.num_halves != 2 || stored_row >= layout.code_rows()) return stored_row;
  if (interleaves_64(layout.layout))
    return deinterleave_row_64(stored_row, layout.padded_half_rows);
  if (layout.layout == DataLayout::kGateUpPairs)
    return unpair_row(stored_row, layout.padded_half_rows);
  return stored_row;
}

HALFBYTE_HOST_DEVICE constexpr LayoutElement make_element(const WeightLayout& layout,
                                                          std::int64_t expert_idx,
                                                          std::int64_t padded_row,
                                                          std::int64_t col,
                                                          std::int64_t num_cols) {
  const std::int64_t row = unpad_row(layout, padded_row);
  const bool is_padding = row < 0 || col >= num_cols;
  return {is_padding, expert_idx, is_padding ? padded_row : row, col};
}

}  // namespace layout_detail

/// Of a padded coordinate: padded_row in [0, code_rows()), col in [0, padded_cols).
HALFBYTE_HOST_DEVICE constexpr CodeLocation locate_padded_code(const WeightLayout& layout,
                                                               std::int64_t expert_idx,
                                                               std::int64_t padded_row,
                                                               std::int64_t col) {
  const std::int64_t row = layout_detail::store_row(layout, padded_row);
  return {expert_idx * layout.code_bytes_per_expert() + row * (layout.padded_cols / 2) + col / 2,
          static_cast<int>(col % 2 * 4)};
}

/// Byte of a padded coordinate: padded_row in [0, scale_rows), group in [0, scale_cols).
HALFBYTE_HOST_DEVICE constexpr std::int64_t locate_padded_block_scale(const WeightLayout& layout,
                                                                      std::int64_t expert_idx,
                                                                      std::int64_t padded_row,
                                                                      std::int64_t group) {
  const std::int64_t row = layout_detail::store_row(layout, padded_row);
  const std::int64_t offset = layout_detail::blocks_scales(layout.layout)
                                  ? blocked_128x4_offset(row, group, layout.scale_cols / 4)
                                  : row * layout.scale_cols + group;
  return expert_idx * layout.scale_bytes_per_expert() + offset;
}

/// Where the code of canonical (row, col) lies.
HALFBYTE_HOST_DEVICE constexpr CodeLocation locate_code(const WeightLayout& layout,
                                                        std::int64_t expert_idx,
                                                        std::int64_t row,
                                                        std::int64_t col) {
  return locate_padded_code(layout, expert_idx, layout_detail::pad_row(layout, row), col);
}

/// Byte of the block scale of canonical row `row` and columns [16 * group, 16 * group + 16).
HALFBYTE_HOST_DEVICE constexpr std::int64_t locate_block_scale(const WeightLayout& layout,
                                                               std::int64_t expert_idx,
                                                               std::int64_t row,
                                                               std::int64_t group) {
  return locate_padded_block_scale(layout, expert_idx, layout_detail::pad_row(layout, row), group);
}

/// Inverse of locate_padded_code: what the nibble at `location` holds.
HALFBYTE_HOST_DEVICE constexpr LayoutElement code_element(const WeightLayout& layout,
                                                          CodeLocation location) {
  const std::int64_t row_bytes = layout.padded_cols / 2;
  const std::int64_t in_expert = location.byte % layout.code_bytes_per_expert();
  const std::int64_t padded_row = layout_detail::unstore_row(layout, in_expert / row_bytes);
  const std::int64_t col = in_expert % row_bytes * 2 + location.shift / 4;
  return layout_detail::make_element(layout, location.byte / layout.code_bytes_per_expert(),
                                     padded_row, col, layout.shape.cols);
}

/// Inverse of locate_padded_block_scale: what the scale at `byte` belongs to.
HALFBYTE_HOST_DEVICE constexpr LayoutElement block_scale_element(const WeightLayout& layout,
                                                                 std::int64_t byte) {
  const std::int64_t in_expert = byte % layout.scale_bytes_per_expert();
  const ScaleCoordinate stored =
      layout_detail::blocks_scales(layout.layout)
          ? blocked_128x4_coordinate(in_expert, layout.scale_cols / 4)
          : ScaleCoordinate{in_expert / layout.scale_cols, in_expert % layout.scale_cols};
  return layout_detail::make_element(layout, byte / layout.scale_bytes_per_expert(),
                                     layout_detail::unstore_row(layout, stored.row), stored.col,
                                     layout.shape.cols / 16);
}

/// Blocked scales [num_experts, rows, cols] as tensor cores address them, without a copy: element
/// (i, j, m, c, q, e) is scale row m * 128 + j * 32 + i, column q * 4 + c of expert e.
struct MmaScaleView {
  std::int64_t shape[6] = {};   // (32, 4, row blocks, 4, column blocks, experts)
  std::int64_t stride[6] = {};  // in bytes

  HALFBYTE_HOST_DEVICE constexpr std::int64_t offset(const std::int64_t (&index)[6]) const {
    std::int64_t sum = 0;
    for (int i = 0; i < 6; ++i)
      sum += index[i] * stride[i];
    return sum;
  }
};

/// @param rows, cols  scales of one expert, before padding to 128 and 4.
/// @return kInvalidArgument when `num_bytes` is not what the padded shape holds.
Result<MmaScaleView> make_mma_scale_view(std::int64_t num_bytes,
                                         std::int64_t rows,
                                         std::int64_t cols,
                                         std::int64_t num_experts);

}  // namespace halfbyte

#endif  // HALFBYTE_FORMATS_LAYOUT_H_

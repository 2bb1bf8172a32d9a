// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/pack.h"

#include <fmt/format.h>

#include <cstring>

#include "formats/e4m3.h"

namespace halfbyte::cpu {
namespace {

std::int64_t element_bytes(WeightFormat format) {
  if (format == WeightFormat::kFp8) return 1;
  return format == WeightFormat::kF32 ? 4 : 2;
}

Status size_mismatch(const char* name, std::int64_t want, std::size_t got) {
  return {StatusCode::kInvalidArgument,
          fmt::format("{}: want {} elements, got {}", name, want, got)};
}

Status check_nvfp4(const CanonicalMatrix& weight) {
  if (weight.cols % kScaleCols != 0) {
    return {StatusCode::kInvalidArgument,
            fmt::format("nvfp4 matrix needs cols % 16 == 0, got {}", weight.cols)};
  }
  const std::int64_t num_codes = weight.rows * weight.cols / 2;
  if (std::ssize(weight.codes) != num_codes)
    return size_mismatch("codes", num_codes, weight.codes.size());
  const std::int64_t num_scales = weight.rows * weight.cols / kScaleCols;
  if (std::ssize(weight.block_scale) != num_scales)
    return size_mismatch("block_scale", num_scales, weight.block_scale.size());
  return {};
}

Status check_fp8_scale(const CanonicalMatrix& weight) {
  if (weight.scale_block_rows <= 0 || weight.scale_block_cols <= 0) {
    return {StatusCode::kInvalidArgument,
            fmt::format("fp8 scale block: want sizes > 0, got {} x {}", weight.scale_block_rows,
                        weight.scale_block_cols)};
  }
  const std::int64_t num_scales = ceil_div(weight.rows, weight.scale_block_rows) *
                                  ceil_div(weight.cols, weight.scale_block_cols);
  if (std::ssize(weight.scale) != num_scales)
    return size_mismatch("scale", num_scales, weight.scale.size());
  if (weight.scale_block_cols % kScaleCols != 0 && weight.scale_block_cols < weight.cols) {
    return {StatusCode::kUnsupported,
            fmt::format("fp8 scale groups need a multiple of 16 columns, got {}",
                        weight.scale_block_cols)};
  }
  return {};
}

Status check_matrix(const CanonicalMatrix& weight) {
  if (weight.rows < 0 || weight.cols <= 0) {
    return {
        StatusCode::kInvalidArgument,
        fmt::format("matrix: want rows >= 0 and cols > 0, got {} x {}", weight.rows, weight.cols)};
  }
  if (weight.format == WeightFormat::kNvfp4) return check_nvfp4(weight);
  const std::int64_t num_bytes = weight.rows * weight.cols * element_bytes(weight.format);
  if (std::ssize(weight.codes) != num_bytes)
    return size_mismatch("codes", num_bytes, weight.codes.size());
  return weight.format == WeightFormat::kFp8 ? check_fp8_scale(weight) : Status();
}

// Four codes, the first in the lowest nibble, as the low nibbles of four bytes.
std::uint32_t spread(std::uint32_t codes) {
  codes = (codes | codes << 8) & 0x00FF00FFU;
  return (codes | codes << 4) & 0x0F0F0F0FU;
}

// Eight columns of one row as its four bytes of a line: column j low, column 4 + j high.
std::uint32_t line_bytes(const std::uint8_t* codes) {
  std::uint32_t packed = 0;
  std::memcpy(&packed, codes, sizeof(packed));
  return spread(packed & 0xFFFFU) | spread(packed >> 16) << 4;
}

// One row of the canonical matrix into its lane of a panel.
Status pack_nvfp4_row(const CanonicalMatrix& weight,
                      const PanelShape& shape,
                      std::int64_t row,
                      std::uint8_t* panel) {
  const std::int64_t lane = row % kPanelRows;
  const std::uint8_t* codes = weight.codes.data() + row * weight.cols / 2;
  const std::uint8_t* scales = weight.block_scale.data() + row * weight.cols / kScaleCols;
  for (std::int64_t block = 0; block < weight.cols / kScaleCols; ++block) {
    if (scales[block] >= kE4m3Nan) {
      return {StatusCode::kCorruptData,
              fmt::format("row {} block {}: block scale 0x{:02X}, want 0x00..0x7E", row, block,
                          scales[block])};
    }
    panel[locate_panel_scale(shape, lane, block)] = e4m3_to_ue5m3(scales[block]);
  }
  for (std::int64_t col = 0; col < weight.cols; col += kLineCols) {
    const std::uint32_t bytes = line_bytes(codes + col / 2);
    std::memcpy(panel + locate_panel_code(shape, lane, col).byte, &bytes, sizeof(bytes));
  }
  return {};
}

void pack_fp8_scales(const CanonicalMatrix& weight,
                     const PanelShape& shape,
                     std::int64_t row,
                     std::uint8_t* panel) {
  const std::int64_t num_groups = shape.num_scale_groups();
  for (std::int64_t group = 0; group < num_groups; ++group) {
    const float value =
        weight.scale[static_cast<std::size_t>(row / weight.scale_block_rows * num_groups + group)];
    std::memcpy(panel + (group * kPanelRows + row % kPanelRows) * 4, &value, sizeof(value));
  }
}

Status pack_elements_row(const CanonicalMatrix& weight,
                         const PanelShape& shape,
                         std::int64_t row,
                         std::uint8_t* panel) {
  const std::int64_t size = element_bytes(shape.format);
  const std::uint8_t* src = weight.codes.data() + row * weight.cols * size;
  for (std::int64_t col = 0; col < weight.cols; ++col, src += size) {
    if (shape.format == WeightFormat::kFp8 && (*src & 0x7FU) == kE4m3Nan) {
      return {StatusCode::kCorruptData,
              fmt::format("row {} column {}: fp8 weight is nan", row, col)};
    }
    std::memcpy(panel + locate_panel_element(shape, row % kPanelRows, col), src,
                static_cast<std::size_t>(size));
  }
  if (shape.format == WeightFormat::kFp8) pack_fp8_scales(weight, shape, row, panel);
  return {};
}

}  // namespace

Result<PanelShape> panel_shape(const CanonicalMatrix& weight) {
  HALFBYTE_RETURN_IF_ERROR(check_matrix(weight));
  return PanelShape{
      .format = weight.format,
      .rows = weight.rows,
      .cols = weight.cols,
      .scale_block_cols = weight.format == WeightFormat::kFp8 ? weight.scale_block_cols : 0};
}

Status pack_panels(const CanonicalMatrix& weight,
                   const PanelShape& shape,
                   std::uint8_t* dst,
                   std::int64_t panel_stride) {
  for (std::int64_t panel_idx = 0; panel_idx < shape.num_panels(); ++panel_idx)
    std::memset(dst + panel_idx * panel_stride, 0, static_cast<std::size_t>(shape.panel_bytes()));
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    std::uint8_t* panel = dst + row / kPanelRows * panel_stride;
    HALFBYTE_RETURN_IF_ERROR(shape.format == WeightFormat::kNvfp4
                                 ? pack_nvfp4_row(weight, shape, row, panel)
                                 : pack_elements_row(weight, shape, row, panel));
  }
  return {};
}

}  // namespace halfbyte::cpu

// SPDX-License-Identifier: Apache-2.0
//
// Plain C++: for machines without AVX2, and what the other units are compared with. Products are
// rounded before they are added (there is no fused multiply-add to count on), so sums that round
// may differ from another instruction set's in their last bits; sums that are exact may not.
#include <bit>
#include <cstring>

#include "formats/bf16.h"
#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "formats/f16.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/panel_layout.h"

namespace halfbyte::cpu {
namespace {

using Lanes = float[kPanelRows];
using Line = Lanes[kLineCols];  // weights of 8 columns x 16 rows

void decode_nvfp4_line(const PanelView& panel, std::int64_t line_idx, Line& w, Lanes& scale) {
  const std::uint8_t* superblock = panel.data + line_idx / 8 * kSuperblockBytes;
  const std::uint8_t* scales = superblock + line_idx % 8 / 2 * kPanelRows;
  const std::uint8_t* codes = superblock + 64 + line_idx % 8 * 64;
  for (std::int64_t row = 0; row < kPanelRows; ++row) {
    scale[row] = std::bit_cast<float>(static_cast<std::uint32_t>(scales[row]) << 20) * 0x1p105F;
    for (std::int64_t j = 0; j < 4; ++j) {
      w[j][row] = kE2m1Values[codes[row * 4 + j] & 15U];
      w[4 + j][row] = kE2m1Values[codes[row * 4 + j] >> 4];
    }
  }
}

float decode_element(WeightFormat format, const std::uint8_t* src) {
  if (format == WeightFormat::kFp8) return e4m3_to_f32(*src);
  if (format == WeightFormat::kF32) {
    float value = 0;
    std::memcpy(&value, src, sizeof(value));
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, src, sizeof(bits));
  return format == WeightFormat::kBf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

void decode_line(const PanelView& panel, std::int64_t line_idx, Line& w, Lanes& scale) {
  if (panel.format == WeightFormat::kNvfp4) return decode_nvfp4_line(panel, line_idx, w, scale);
  const PanelShape shape{panel.format, kPanelRows, panel.cols, panel.scale_block_cols};
  for (std::int64_t col = 0; col < kLineCols; ++col) {
    for (std::int64_t row = 0; row < kPanelRows; ++row) {
      const std::int64_t at = locate_panel_element(shape, row, line_idx * kLineCols + col);
      w[col][row] = decode_element(panel.format, panel.data + at);
    }
  }
  if (panel.format != WeightFormat::kFp8) return;
  const std::int64_t group = line_idx * kLineCols / panel.scale_block_cols;
  std::memcpy(scale, panel.data + group * kPanelRows * 4, sizeof(Lanes));
}

void add_line(
    const Line& w, const Lanes& scale, const float* x, std::int64_t num_cols, float* total) {
  Lanes sum;
  for (std::int64_t row = 0; row < kPanelRows; ++row)
    sum[row] = x[0] * w[0][row];
  for (std::int64_t col = 1; col < num_cols; ++col) {
    for (std::int64_t row = 0; row < kPanelRows; ++row)
      sum[row] += x[col] * w[col][row];
  }
  for (std::int64_t row = 0; row < kPanelRows; ++row)
    total[row] += sum[row] * scale[row];
}

}  // namespace

void panel_dot_portable(const PanelView& panel, const float* const* x, int num_x, float* sums) {
  std::memset(sums, 0, static_cast<std::size_t>(num_x) * sizeof(Lanes));
  Line w;
  Lanes scale;
  for (float& one : scale)
    one = 1.0F;
  for (std::int64_t col = 0; col < panel.cols; col += kLineCols) {
    decode_line(panel, col / kLineCols, w, scale);
    const std::int64_t num_cols = panel.cols - col < kLineCols ? panel.cols - col : kLineCols;
    for (int t = 0; t < num_x; ++t)
      add_line(w, scale, x[t] + col, num_cols, sums + t * kPanelRows);
  }
}

}  // namespace halfbyte::cpu

// SPDX-License-Identifier: Apache-2.0
#include "formats/layout.h"

#include <fmt/format.h>

#include <numeric>

#include "base/checked.h"
#include "formats/nvfp4.h"

namespace halfbyte {
namespace {

bool orders_gate_and_up(DataLayout layout) {
  return layout_detail::interleaves_64(layout) || layout == DataLayout::kGateUpPairs;
}

Status check_shape(DataLayout layout, const WeightShape& shape, const LayoutPadding& padding) {
  if (shape.num_experts < 0 || shape.half_rows < 0 || shape.cols < 0 ||
      shape.cols % kNvfp4BlockSize != 0) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("layout {}: {} experts of {} x {}: want sizes >= 0 and columns in "
                    "multiples of 16",
                    layout_info(layout).name, shape.num_experts, shape.half_rows, shape.cols));
  }
  const std::int64_t fewest_halves = orders_gate_and_up(layout) ? 2 : 1;
  if (shape.num_halves < fewest_halves || shape.num_halves > 2) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("layout {}: {} halves, want {} to 2 (gate and up)",
                              layout_info(layout).name, shape.num_halves, fewest_halves));
  }
  if (padding.half_row_alignment < 1 || padding.col_alignment < 1 ||
      padding.col_alignment % kNvfp4BlockSize != 0) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("layout {}: alignment of {} rows and {} columns, want >= 1 and a "
                    "multiple of 16",
                    layout_info(layout).name, padding.half_row_alignment, padding.col_alignment));
  }
  return {};
}

}  // namespace

Result<WeightLayout> make_layout(DataLayout layout, WeightShape shape, LayoutPadding padding) {
  HALFBYTE_RETURN_IF_ERROR(check_shape(layout, shape, padding));
  const LayoutInfo info = layout_info(layout);
  WeightLayout made;
  made.layout = layout;
  made.shape = shape;
  made.padded_half_rows =
      round_up(shape.half_rows, std::lcm(info.half_row_alignment, padding.half_row_alignment));
  made.padded_cols = round_up(shape.cols, padding.col_alignment);
  made.scale_rows = round_up(made.code_rows(), info.scale_row_alignment);
  made.scale_cols = round_up(made.padded_cols / kNvfp4BlockSize, info.scale_col_alignment);
  return made;
}

Result<MmaScaleView> make_mma_scale_view(std::int64_t num_bytes,
                                         std::int64_t rows,
                                         std::int64_t cols,
                                         std::int64_t num_experts) {
  const std::int64_t row_blocks = ceil_div(rows, 128);
  const std::int64_t col_blocks = ceil_div(cols, 4);
  const std::int64_t wanted = num_experts * row_blocks * col_blocks * 512;
  if (num_bytes != wanted) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("blocked scales of {} experts, {} x {}: got {} bytes, want {}",
                              num_experts, rows, cols, num_bytes, wanted));
  }
  const std::int64_t row_block_stride = 512 * col_blocks;
  return MmaScaleView{{32, 4, row_blocks, 4, col_blocks, num_experts},
                      {16, 4, row_block_stride, 1, 512, row_block_stride * row_blocks}};
}

}  // namespace halfbyte

// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "formats/convert.h"
#include "kernels/cpu/pack.h"

namespace halfbyte::cpu {
namespace {

struct LinearArgs {
  const PackedMatrix& weight;
  PanelShape shape;
  const float* x = nullptr;
  std::int64_t num_tokens = 0;
  float* y = nullptr;
  std::int64_t y_stride = 0;
  float global_scale = 1.0F;
};

void store_rows(
    const LinearArgs& args, std::int64_t row, std::int64_t token, int num_x, const float* sums) {
  const std::int64_t num_rows = std::min(kPanelRows, args.shape.rows - row);
  for (int t = 0; t < num_x; ++t) {
    float* dst = args.y + (token + t) * args.y_stride + row;
    for (std::int64_t i = 0; i < num_rows; ++i)
      dst[i] = sums[t * kPanelRows + i] * args.global_scale;
  }
}

void run_panel(const LinearArgs& args, const KernelTable& kernels, std::int64_t panel_idx) {
  const PanelView panel{
      args.shape.format,
      args.weight.data.as<const std::uint8_t>() + panel_idx * args.shape.panel_bytes(),
      args.shape.cols, args.shape.scale_block_cols};
  float sums[kTokenTile * kPanelRows];
  for (std::int64_t token = 0; token < args.num_tokens; token += kTokenTile) {
    const int num_x = static_cast<int>(std::min<std::int64_t>(kTokenTile, args.num_tokens - token));
    const float* x[kTokenTile] = {};
    for (int t = 0; t < num_x; ++t)
      x[t] = args.x + (token + t) * args.shape.cols;
    kernels.panel_dot(panel, x, num_x, sums);
    store_rows(args, panel_idx * kPanelRows, token, num_x, sums);
  }
}

bool scale_groups_are_unaligned(const CanonicalMatrix& weight) {
  return weight.format == WeightFormat::kFp8 && weight.scale_block_cols > 0 &&
         weight.scale_block_cols % kScaleCols != 0 && weight.scale_block_cols < weight.cols;
}

Result<PackedMatrix> pack_aligned(const CanonicalMatrix& weight) {
  Result<PanelShape> shape = panel_shape(weight);
  if (!shape.ok()) return shape.take_status();
  const std::int64_t panel_bytes = shape.value().panel_bytes();
  Result<HostBuffer> data =
      HostBuffer::allocate(static_cast<std::size_t>(shape.value().num_panels() * panel_bytes));
  if (!data.ok()) return data.take_status();
  HALFBYTE_RETURN_IF_ERROR(
      pack_panels(weight, shape.value(), data.value().as<std::uint8_t>(), panel_bytes));
  return PackedMatrix{.format = weight.format,
                      .rows = weight.rows,
                      .cols = weight.cols,
                      .global_scale = weight.global_scale,
                      .scale_block_cols = shape.value().scale_block_cols,
                      .data = std::move(data.value())};
}

// Scale groups that cross a line of columns have no place in the panel: such a matrix is kept in
// fp32, one rounding per weight.
Result<PackedMatrix> pack_as_f32(const CanonicalMatrix& weight) {
  std::vector<float> rows(static_cast<std::size_t>(weight.rows * weight.cols));
  for (std::int64_t row = 0; row < weight.rows; ++row)
    dequantize_row(weight, row, rows.data() + row * weight.cols);
  CanonicalMatrix widened;
  widened.format = WeightFormat::kF32;
  widened.rows = weight.rows;
  widened.cols = weight.cols;
  widened.codes = {reinterpret_cast<const std::uint8_t*>(rows.data()), rows.size() * sizeof(float)};
  return pack_aligned(widened);
}

}  // namespace

Result<PackedMatrix> pack_matrix(const CanonicalMatrix& weight) {
  return scale_groups_are_unaligned(weight) ? pack_as_f32(weight) : pack_aligned(weight);
}

void linear(const PackedMatrix& weight,
            const float* x,
            std::int64_t num_tokens,
            float* y,
            std::int64_t y_stride,
            bool apply_global_scale,
            ThreadPool& pool,
            const KernelTable& kernels) {
  const bool scaled = apply_global_scale && weight.format == WeightFormat::kNvfp4;
  const LinearArgs args{.weight = weight,
                        .shape = {weight.format, weight.rows, weight.cols, weight.scale_block_cols},
                        .x = x,
                        .num_tokens = num_tokens,
                        .y = y,
                        .y_stride = y_stride,
                        .global_scale = scaled ? weight.global_scale : 1.0F};
  if (num_tokens == 0) return;
  pool.parallel_for(args.shape.num_panels(),
                    [&](std::int64_t panel_idx, int) { run_panel(args, kernels, panel_idx); });
}

std::string isa_description() {
  const KernelTable& best = best_kernel_table();
  std::string missing;
  for (const KernelTable* table : list_kernel_tables()) {
    if (table == &best) break;
    missing += missing.empty() ? "" : ", ";
    missing += missing_feature(*table);
  }
  return fmt::format("{} ({})", best.name, missing.empty() ? "widest of this build" : missing);
}

}  // namespace halfbyte::cpu

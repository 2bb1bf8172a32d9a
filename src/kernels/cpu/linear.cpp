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

// Of weights that lie one after the other: what a thread prefetches behind a panel is then its own.
constexpr std::int64_t kTaskBytes = std::int64_t{256} << 10;
constexpr std::int64_t kTasksPerThread = 4;  // at least: threads do not end at the same time

template <typename X>
struct LinearArgs {
  const PackedMatrix& weight;
  PanelShape shape;
  const X* x = nullptr;
  std::int64_t x_stride = 0;
  std::int64_t num_tokens = 0;
  const LinearOutput& y;
  const KernelTable& kernels;
};

// sums[t][0..15] of one panel; 1 <= num_x <= kMaxRowTile.
void panel_sums(const KernelTable& kernels,
                const PanelView& panel,
                const float* const* x,
                int num_x,
                float* sums) {
  for (int t = 0; t < num_x; t += kTokenTile)
    kernels.panel_dot(panel, x + t, std::min(kTokenTile, num_x - t), sums + t * kPanelRows);
}

void panel_sums(const KernelTable& kernels,
                const PanelView& panel,
                const Split15Record* const* x,
                int num_x,
                float* sums) {
  kernels.split15_dot(panel.data, num_records(panel.cols), x, num_x, sums);
}

void panel_sums(const KernelTable& kernels,
                const PanelView& panel,
                const Int8Record* const* x,
                int num_x,
                float* sums) {
  kernels.int8_dot(panel.data, num_records(panel.cols), x, num_x, sums);
}

void store_rows(const LinearOutput& y,
                std::int64_t num_rows,
                std::int64_t row,
                std::int64_t token,
                int num_x,
                const float* sums) {
  for (int t = 0; t < num_x; ++t) {
    float* dst = y.data + (token + t) * y.row_stride + row;
    for (std::int64_t i = 0; i < num_rows; ++i)
      dst[i] = sums[t * kPanelRows + i] * y.scale;
  }
}

template <typename X>
PanelView panel_at(const LinearArgs<X>& args, std::int64_t panel_idx) {
  const auto* data = args.weight.data.template as<const std::uint8_t>();
  return {args.shape.format, data + panel_idx * args.shape.panel_bytes(), args.shape.cols,
          args.shape.scale_block_cols};
}

template <typename X>
void run_panel(const LinearArgs<X>& args, std::int64_t panel_idx) {
  const PanelView panel = panel_at(args, panel_idx);
  const std::int64_t row = panel_idx * kPanelRows;
  float sums[kMaxRowTile * kPanelRows];
  const int row_tile = args.kernels.row_tile;
  for (std::int64_t token = 0; token < args.num_tokens; token += row_tile) {
    const int num_x = static_cast<int>(std::min<std::int64_t>(row_tile, args.num_tokens - token));
    const X* x[kMaxRowTile] = {};
    for (int t = 0; t < num_x; ++t)
      x[t] = args.x + (token + t) * args.x_stride;
    panel_sums(args.kernels, panel, x, num_x, sums);
    store_rows(args.y, std::min(kPanelRows, args.shape.rows - row), row, token, num_x, sums);
  }
}

template <typename X>
void run_panels(const LinearArgs<X>& args, std::int64_t panel_idx, std::int64_t end) {
  for (; panel_idx < end; ++panel_idx)
    run_panel(args, panel_idx);
}

bool waits_for_memory(const LinearArgs<float>& args) {
  return args.num_tokens <= kTokenTile && args.shape.format != WeightFormat::kNvfp4 &&
         args.kernels.panel_streams_dot != nullptr;
}

// Few rows of fp32 take several panels at once.
void run_panels(const LinearArgs<float>& args, std::int64_t panel_idx, std::int64_t end) {
  const auto num_x = static_cast<int>(args.num_tokens);
  const float* x[kTokenTile] = {};
  for (int t = 0; t < std::min(num_x, kTokenTile); ++t)
    x[t] = args.x + t * args.x_stride;
  for (; waits_for_memory(args) && panel_idx + kPanelStreams <= end; panel_idx += kPanelStreams) {
    float sums[kPanelStreams * kTokenTile * kPanelRows];
    args.kernels.panel_streams_dot(panel_at(args, panel_idx), args.shape.panel_bytes(), x, num_x,
                                   sums);
    for (std::int64_t p = 0; p < kPanelStreams; ++p) {
      const std::int64_t row = (panel_idx + p) * kPanelRows;
      store_rows(args.y, std::min(kPanelRows, args.shape.rows - row), row, 0, num_x,
                 sums + p * num_x * kPanelRows);
    }
  }
  run_panels<float>(args, panel_idx, end);
}

std::int64_t panels_per_task(const PanelShape& shape, int num_threads) {
  const std::int64_t even = ceil_div(shape.num_panels(), num_threads * kTasksPerThread);
  const std::int64_t least =
      std::min<std::int64_t>(kPanelStreams, ceil_div(shape.num_panels(), num_threads));
  const std::int64_t count =
      std::clamp(kTaskBytes / shape.panel_bytes(), least, std::max(even, least));
  return count < kPanelStreams ? count : count - count % kPanelStreams;
}

template <typename X>
void run_linear(const LinearArgs<X>& args, ThreadPool& pool) {
  if (args.num_tokens == 0) return;
  const std::int64_t num_panels = args.shape.num_panels();
  const std::int64_t per_task = panels_per_task(args.shape, pool.num_threads());
  pool.parallel_for(ceil_div(num_panels, per_task), [&](std::int64_t task, int) {
    const std::int64_t end = std::min(num_panels, (task + 1) * per_task);
    run_panels(args, task * per_task, end);
  });
}

PanelShape shape_of(const PackedMatrix& weight) {
  return {weight.format, weight.rows, weight.cols, weight.scale_block_cols};
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
  return PackedMatrix{
      .format = weight.format,
      .rows = weight.rows,
      .cols = weight.cols,
      .global_scale = weight.format == WeightFormat::kNvfp4 ? weight.global_scale : 1.0F,
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
            const LinearOutput& y,
            ThreadPool& pool,
            const KernelTable& kernels) {
  run_linear(LinearArgs<float>{weight, shape_of(weight), x, weight.cols, num_tokens, y, kernels},
             pool);
}

void linear(const PackedMatrix& weight,
            const Split15Record* x,
            std::int64_t num_tokens,
            const LinearOutput& y,
            ThreadPool& pool,
            const KernelTable& kernels) {
  run_linear(LinearArgs<Split15Record>{weight, shape_of(weight), x, num_records(weight.cols),
                                       num_tokens, y, kernels},
             pool);
}

void linear(const PackedMatrix& weight,
            const Int8Record* x,
            std::int64_t num_tokens,
            const LinearOutput& y,
            ThreadPool& pool,
            const KernelTable& kernels) {
  run_linear(LinearArgs<Int8Record>{weight, shape_of(weight), x, num_records(weight.cols),
                                    num_tokens, y, kernels},
             pool);
}

std::string isa_description() {
  const KernelTable& best = best_kernel_table();
  if (kernel_table_is_forced()) return fmt::format("{} (asked for)", best.name);
  std::string missing;
  for (const KernelTable* table : list_kernel_tables()) {
    if (table == &best) break;
    missing += missing.empty() ? "" : ", ";
    missing += missing_feature(*table);
  }
  return fmt::format("{} ({})", best.name, missing.empty() ? "widest of this build" : missing);
}

}  // namespace halfbyte::cpu

// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <limits>
#include <string_view>

#include "kernels/cuda/sm100/grouped_gemm_nvfp4_nvfp4.h"

namespace halfbyte::sm100 {
namespace {

constexpr std::string_view kName = "grouped_gemm_nvfp4_nvfp4";

// A wide tile that is at most half full works longer than two narrow ones. Not measured.
constexpr double kMaxNarrowRows = 128;

// Tensor maps of one multiprocessor: six, each once a pipeline stage and some more.
constexpr std::size_t kScratchBytesPerCta = 24 * 1024;

Status refuse(std::string_view what) {
  return {StatusCode::kUnsupported, fmt::format("{}: {}", kName, what)};
}

Status check_sizes(const GroupedGemmShape& shape) {
  const WeightLayout& weights = shape.weights;
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  if (weights.shape.num_experts < 0 || weights.shape.num_experts > kMaxExperts)
    return refuse(fmt::format("{} experts on one rank, want 0 to {}", weights.shape.num_experts,
                              kMaxExperts));
  if (weights.code_rows() < 4 || weights.code_rows() % 4 != 0 || weights.padded_cols < 32 ||
      weights.padded_cols % 32 != 0)
    return refuse(
        fmt::format("{} x {} padded weights, want rows in multiples of 4 and columns in multiples "
                    "of 32, which keep every row 16-byte aligned",
                    weights.code_rows(), weights.padded_cols));
  if (weights.code_rows() > kMax || weights.padded_cols > kMax || shape.max_routes > kMax)
    return refuse(fmt::format("{} x {} weights and {} routes, want fewer than 2^31 of each",
                              weights.code_rows(), weights.padded_cols, shape.max_routes));
  return {};
}

}  // namespace

std::string GroupedGemmConfig::to_string() const {
  return fmt::format("{}: tiles of {} x {} x {}, {} CTAs, {} B scratch", kName, kTileRows,
                     tile_tokens, kTileCols, num_ctas, scratch_bytes);
}

Status can_run(const GroupedGemmShape& shape, const device::Properties& device) {
  if (device.compute_capability != 100)
    return refuse(
        fmt::format("compute capability {}, want 100 (Blackwell)", device.compute_capability));
  if (!layout_detail::blocks_scales(shape.weights.layout))
    return refuse(fmt::format("weights in the layout {}, want scales in blocks of 128 x 4",
                              layout_info(shape.weights.layout).name));
  return check_sizes(shape);
}

GroupedGemmConfig select_config(const GroupedGemmShape& shape, const device::Properties& device) {
  GroupedGemmConfig config;
  config.tile_tokens = shape.rows_per_expert <= kMaxNarrowRows ? kNarrowTile : kWideTile;
  config.num_ctas = device.num_multiprocessors;
  config.scratch_bytes = static_cast<std::size_t>(config.num_ctas) * kScratchBytesPerCta;
  return config;
}

}  // namespace halfbyte::sm100

// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm90/grouped_gemm_bf16_nvfp4.h"

#include <fmt/format.h>

namespace halfbyte::sm90 {
namespace {

constexpr int kTileTokens[] = {64, 96, 160};  // 96 by tuning alone
constexpr int kW4a4TileTokens[] = {64, 160};

/// Up to so many rows an expert on average, few have more than 64.
constexpr double kMaxNarrowRows = 52;

int choose_tile_tokens(const GroupedGemmShape& shape) {
  return shape.rows_per_expert <= kMaxNarrowRows ? 64 : 160;
}

}  // namespace

std::string GroupedGemmConfig::to_string() const {
  return fmt::format(
      "grouped_gemm_bf16_nvfp4: 256 rows x {} tokens, {} stages of 64 columns, {} B shared, {} "
      "CTAs",
      tile_tokens, num_stages, shared_bytes, num_ctas);
}

std::span<const int> list_tile_tokens(GemmOutput output) {
  switch (output) {
    case GemmOutput::kActivated:
    case GemmOutput::kRows:
      return kTileTokens;
    case GemmOutput::kQuantized:
    case GemmOutput::kScaledRows:
      return kW4a4TileTokens;
  }
  return {};
}

Status check_gemm(std::string_view kernel,
                  const WeightShape& weights,
                  DType row_dtype,
                  const device::Properties& limits) {
  const auto refuse = [kernel](const std::string& what) {
    return Status(StatusCode::kUnsupported, fmt::format("{}: {}", kernel, what));
  };
  if (limits.compute_capability != 90)
    return refuse(
        fmt::format("compute capability {}, want 90 (Hopper)", limits.compute_capability));
  if (weights.half_rows < 16 || weights.half_rows % 16 != 0 || weights.cols < 16 ||
      weights.cols % 16 != 0)
    return refuse(
        fmt::format("{} rows, {} columns, want multiples of 16", weights.half_rows, weights.cols));
  if (weights.num_experts < 1 || weights.num_experts > kGemmMaxExperts)
    return refuse(
        fmt::format("{} experts on one rank, want 1 to {}", weights.num_experts, kGemmMaxExperts));
  if (row_dtype != DType::kF32 && row_dtype != DType::kBf16)
    return refuse(fmt::format("rows of {}, want float32 or bfloat16", dtype_name(row_dtype)));
  return {};
}

Status can_run(const GroupedGemmShape& shape, const device::Properties& limits) {
  return check_gemm("grouped_gemm_bf16_nvfp4", shape.weights.shape, shape.row_dtype, limits);
}

GroupedGemmConfig make_config(const GroupedGemmShape& shape,
                              int tile_tokens,
                              const device::Properties& limits) {
  GroupedGemmConfig config;
  config.tile_tokens = tile_tokens;
  config.num_stages = gemm_num_stages(tile_tokens);
  config.shared_bytes = 1024 + gemm_staging_bytes(tile_tokens) +
                        config.num_stages * gemm_stage_bytes(tile_tokens) +
                        gemm_table_bytes(static_cast<int>(shape.weights.shape.num_experts));
  config.num_ctas = limits.num_multiprocessors;
  return config;
}

GroupedGemmConfig select_config(const GroupedGemmShape& shape, const device::Properties& limits) {
  return make_config(shape, choose_tile_tokens(shape), limits);
}

}  // namespace halfbyte::sm90

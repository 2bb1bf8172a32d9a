// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm90/grouped_gemm_bf16_nvfp4.h"

#include <fmt/format.h>

namespace halfbyte::sm90 {
namespace {

constexpr int kTileTokens[] = {64, 96, 160};
// A warp quantises 16 features: with a gate they are two m64 tiles, which narrow products lack.
constexpr int kQuantizedTileTokens[] = {96, 160};
constexpr int kScaledTileTokens[] = {64, 160};

/// Up to so many rows an expert on average, few have more than 64, or 96.
constexpr double kMaxNarrowRows = 52;
constexpr double kMaxMiddleRows = 80;

int choose_tile_tokens(const GroupedGemmShape& shape) {
  if (shape.output == GemmOutput::kQuantized)
    return shape.rows_per_expert <= kMaxMiddleRows ? 96 : 160;
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
      return kQuantizedTileTokens;
    case GemmOutput::kScaledRows:
      return kScaledTileTokens;
  }
  return {};
}

Status can_run(const GroupedGemmShape& shape, const device::Properties& limits) {
  if (limits.compute_capability != 90) {
    return {StatusCode::kUnsupported,
            fmt::format("grouped_gemm_bf16_nvfp4: compute capability {}, want 90 (Hopper)",
                        limits.compute_capability)};
  }
  const WeightShape& w = shape.weights.shape;
  if (w.half_rows < 16 || w.half_rows % 16 != 0 || w.cols < 16 || w.cols % 16 != 0) {
    return {StatusCode::kUnsupported,
            fmt::format("grouped_gemm_bf16_nvfp4: {} rows, {} columns, want multiples of 16",
                        w.half_rows, w.cols)};
  }
  if (w.num_experts < 1 || w.num_experts > kGemmMaxExperts) {
    return {StatusCode::kUnsupported,
            fmt::format("grouped_gemm_bf16_nvfp4: {} experts on one rank, want 1 to {}",
                        w.num_experts, kGemmMaxExperts)};
  }
  if (shape.row_dtype != DType::kF32 && shape.row_dtype != DType::kBf16) {
    return {StatusCode::kUnsupported,
            fmt::format("grouped_gemm_bf16_nvfp4: rows of {}, want float32 or bfloat16",
                        dtype_name(shape.row_dtype))};
  }
  return {};
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

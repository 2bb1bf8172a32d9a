// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm90/grouped_gemm_bf16_nvfp4.h"

#include <fmt/format.h>

#include <cmath>

namespace halfbyte::sm90 {
namespace {

constexpr int kTileTokens[] = {32, 64, 96, 128, 144, 160};

/// Relative time of a token column in a tile of this width: below 128 the tensor core waits for the
/// weights' decoder (measured: docs/performance-sm90.md).
double cost_of_tile(int tile_tokens) {
  const double busy = tile_tokens >= 128  ? 0.96
                      : tile_tokens >= 96 ? 0.82
                      : tile_tokens >= 64 ? 0.64
                                          : 0.37;
  return tile_tokens / busy;
}

double normal_cdf(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0));
}

/// Mean number of tiles of an expert whose rows are about Poisson of this mean.
double expected_tiles(double mean, int tile_tokens) {
  double tiles = 1;
  const double deviation = std::sqrt(mean) + 1e-9;
  for (int i = 1; i * tile_tokens < mean + 6 * deviation; ++i)
    tiles += 1 - normal_cdf((i * tile_tokens + 0.5 - mean) / deviation);
  return tiles;
}

}  // namespace

std::string GroupedGemmConfig::to_string() const {
  return fmt::format(
      "grouped_gemm_bf16_nvfp4: 256 rows x {} tokens, {} stages of 128 columns, {} B shared, {} "
      "CTAs",
      tile_tokens, num_stages, 64 * kGemmStageCells, shared_bytes, num_ctas);
}

std::span<const int> list_tile_tokens() {
  return kTileTokens;
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
  config.shared_bytes =
      1024 + kGemmStagingBytes +
      config.num_stages * (gemm_weight_stage_bytes() + gemm_token_stage_bytes(tile_tokens) + 16) +
      (3 * static_cast<int>(shape.weights.shape.num_experts) + 1) * 4;
  config.num_ctas = limits.num_multiprocessors;
  return config;
}

GroupedGemmConfig select_config(const GroupedGemmShape& shape, const device::Properties& limits) {
  int best = kTileTokens[0];
  double best_cost = INFINITY;
  for (const int tokens : kTileTokens) {
    const double cost = expected_tiles(shape.rows_per_expert, tokens) * cost_of_tile(tokens);
    if (cost < best_cost) best = tokens;
    best_cost = std::min(best_cost, cost);
  }
  return make_config(shape, best, limits);
}

}  // namespace halfbyte::sm90

// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "kernels/cuda/sm90/grouped_gemm_fp8_nvfp4.h"

namespace halfbyte::sm90 {
namespace {

constexpr int kTileTokens[] = {16, 64, 160};

/// Up to this many rows an expert on average, few have more than 16, or than 64.
constexpr double kMaxRowsOf16 = 10;
constexpr double kMaxRowsOf64 = 52;

int choose_tile_tokens(double rows_per_expert) {
  if (rows_per_expert <= kMaxRowsOf16) return 16;
  return rows_per_expert <= kMaxRowsOf64 ? 64 : 160;
}

}  // namespace

std::string GroupedGemmFp8Config::to_string() const {
  return fmt::format(
      "grouped_gemm_fp8_nvfp4: 128 rows x {} tokens, {} stages of 128 columns, {} B shared, {} "
      "CTAs",
      tile_tokens, num_stages, shared_bytes, num_ctas);
}

std::span<const int> list_fp8_tile_tokens() {
  return kTileTokens;
}

Status can_run(const GroupedGemmFp8Shape& shape, const device::Properties& limits) {
  return check_gemm("grouped_gemm_fp8_nvfp4", shape.weights.shape, shape.row_dtype, limits);
}

GroupedGemmFp8Config make_config(const GroupedGemmFp8Shape& shape,
                                 int tile_tokens,
                                 const device::Properties& limits) {
  GroupedGemmFp8Config config;
  config.tile_tokens = tile_tokens;
  config.num_stages = fp8_num_stages(tile_tokens);
  config.shared_bytes = fp8_fixed_bytes(static_cast<int>(shape.weights.shape.num_experts)) +
                        config.num_stages * fp8_stage_bytes(tile_tokens);
  const int cluster = fp8_cluster_ctas(tile_tokens);
  config.num_ctas =
      limits.num_multiprocessors * fp8_ctas_per_multiprocessor(tile_tokens) / cluster * cluster;
  return config;
}

GroupedGemmFp8Config select_config(const GroupedGemmFp8Shape& shape,
                                   const device::Properties& limits) {
  return make_config(shape, choose_tile_tokens(shape.rows_per_expert), limits);
}

}  // namespace halfbyte::sm90

// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "kernels/cuda/sm90/moe_decode_nvfp4.h"

namespace halfbyte::sm90 {
namespace {

constexpr int kMaxLocalExperts = 512;
constexpr int kCtasPerMultiprocessor = 2;

constexpr MoeDecodeTile kTiles[] = {
    {.row_groups = 4, .token_blocks = 1, .cells_per_warp = 2, .num_stages = 4},
    {.row_groups = 4, .token_blocks = 2, .cells_per_warp = 2, .num_stages = 3},
    {.row_groups = 2, .token_blocks = 1, .cells_per_warp = 1, .num_stages = 6},
    {.row_groups = 1, .token_blocks = 1, .cells_per_warp = 1, .num_stages = 5},
};

const MoeDecodeTile& choose_tile(const MoeDecodeShape& shape, int num_ctas) {
  const double rows_per_expert = shape.expected_rows / (shape.expected_experts + 1e-9);
  // Twice the mean covers nearly all experts of a random routing; the others take a second tile.
  if (rows_per_expert > 6) return kTiles[1];
  const double large_tiles =
      shape.expected_experts * static_cast<double>(shape.gate_up().rows()) / 128;
  // With fewer tiles than CTAs smaller ones use more of them; each costs another epilogue.
  if (large_tiles < 64) return kTiles[3];
  if (large_tiles < 0.75 * num_ctas) return kTiles[2];
  return kTiles[0];
}

}  // namespace

std::string MoeDecodeConfig::to_string() const {
  return fmt::format(
      "moe_decode_nvfp4: {} rows x {} tokens, {} stages of {} columns, {} B shared, {} CTAs",
      32 * tile.row_groups, 8 * tile.token_blocks, tile.num_stages, tile.stage_cols(), shared_bytes,
      num_ctas);
}

std::span<const MoeDecodeTile> list_moe_decode_tiles() {
  return kTiles;
}

Status can_run(const MoeDecodeShape& shape, const device::Properties& limits) {
  if (limits.compute_capability != 90) {
    return {StatusCode::kUnsupported,
            fmt::format("moe_decode_nvfp4: compute capability {}, want 90 (Hopper)",
                        limits.compute_capability)};
  }
  if (shape.hidden_size < 16 || shape.hidden_size % 16 != 0 || shape.intermediate_size < 16 ||
      shape.intermediate_size % 16 != 0) {
    return {StatusCode::kUnsupported,
            fmt::format("moe_decode_nvfp4: hidden size {}, intermediate size {}, want multiples "
                        "of 16",
                        shape.hidden_size, shape.intermediate_size)};
  }
  if (shape.num_local_experts < 1 || shape.num_local_experts > kMaxLocalExperts) {
    return {StatusCode::kUnsupported,
            fmt::format("moe_decode_nvfp4: {} experts on one rank, want 1 to {}",
                        shape.num_local_experts, kMaxLocalExperts)};
  }
  if (shape.row_dtype != DType::kF32 && shape.row_dtype != DType::kBf16) {
    return {StatusCode::kUnsupported,
            fmt::format("moe_decode_nvfp4: rows of {}, want float32 or bfloat16",
                        dtype_name(shape.row_dtype))};
  }
  return {};
}

MoeDecodeConfig make_config(const MoeDecodeShape& shape,
                            const MoeDecodeTile& tile,
                            const device::Properties& limits) {
  return {.tile = tile,
          .shared_bytes = tile.shared_bytes(shape.num_local_experts),
          .num_ctas = kCtasPerMultiprocessor * limits.num_multiprocessors};
}

MoeDecodeConfig select_config(const MoeDecodeShape& shape, const device::Properties& limits) {
  const int num_ctas = kCtasPerMultiprocessor * limits.num_multiprocessors;
  return make_config(shape, choose_tile(shape, num_ctas), limits);
}

}  // namespace halfbyte::sm90

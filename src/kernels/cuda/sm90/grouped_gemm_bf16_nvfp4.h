// SPDX-License-Identifier: Apache-2.0
//
// One GEMM of all experts for many rows per expert: bf16 tokens, NVFP4 weights in
// formats/sm90_layout.h. Mode w4a16; with tokens on the NVFP4 grid (grid_tokens.h) the w4a4 modes.
// Correct for every distribution of rows. Host only: no CUDA header.
#ifndef HALFBYTE_KERNELS_CUDA_SM90_GROUPED_GEMM_BF16_NVFP4_H_
#define HALFBYTE_KERNELS_CUDA_SM90_GROUPED_GEMM_BF16_NVFP4_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "device/properties.h"
#include "formats/sm90_layout.h"
#include "halfbyte/dtype.h"
#include "halfbyte/moe.h"
#include "kernels/cuda/common/nvfp4_quantize.h"
#include "kernels/cuda/sm90/token_tiles.h"

struct CUstream_st;

namespace halfbyte::sm90 {

enum class GemmOutput : std::int32_t {
  kActivated = 0,   // gate_up: the activation of the sums, as token tiles of the next product
  kRows = 1,        // the sums, in order: of down, or of gate_up in the order of its stored rows
  kQuantized = 2,   // gate_up: kActivated on the NVFP4 grid, with the portable sigmoid
  kScaledRows = 3,  // down: kRows with an alpha for every row
};
HALFBYTE_HOST_DEVICE constexpr bool writes_tiles(GemmOutput output) {
  return output == GemmOutput::kActivated || output == GemmOutput::kQuantized;
}

struct GroupedGemmShape {
  WeightLayout weights;
  GemmOutput output = GemmOutput::kRows;
  DType row_dtype = DType::kBf16;  // of rows: kBf16 or kF32
  double rows_per_expert = 0;      // expected in the planned step, of experts with any

  /// Columns of the output: of h padded to 64, or of the rows; of two halves with their padding.
  std::int64_t output_cols() const {
    if (writes_tiles(output)) return (weights.shape.half_rows + 63) / 64 * 64;
    return weights.shape.num_halves == 2 ? weights.rows() : weights.shape.half_rows;
  }
};

struct GroupedGemmConfig {
  int tile_tokens = 0;  // at most, beside 256 weight rows; the rows of an expert choose the width
  int num_stages = 0;   // of 64 columns
  int shared_bytes = 0;
  int num_ctas = 0;  // persistent grid
  bool operator==(const GroupedGemmConfig&) const = default;
  std::string to_string() const;
};

/// Device pointers, 16-byte aligned. Routes of expert e are rows expert_offset[e] and following.
/// Counts, offsets and weights are read while the kernel before still runs: it is one that writes
/// none of them and lets this one start only after its own wait (ptx::wait_then_launch_next).
struct GroupedGemmArgs {
  const void* tokens = nullptr;  // TokenTiles of tile_tokens and weights.padded_cols()
  const std::int64_t* expert_offset = nullptr;  // [num_experts + 1]
  const std::int32_t* expert_count = nullptr;   // [num_experts]
  const std::uint8_t* weights = nullptr;        // weights.bytes()
  const float* alpha[2] = {};  // [num_experts] of each half; kRows: of half 0, null for 1
  ActivationSpec activation;   // of token tiles
  void* output = nullptr;      // TokenTiles of output_cols(), or [routes, output_cols()]
  const cuda::QuantizeScale* h_scale = nullptr;  // kQuantized: [1]
  const float* row_alpha = nullptr;              // kScaledRows: [routes]
};

/// Tile sizes that are compiled for an output; each can be forced.
std::span<const int> list_tile_tokens(GemmOutput output);
Status can_run(const GroupedGemmShape& shape, const device::Properties& limits);
/// What every grouped GEMM here asks of its sizes; `kernel` is named in what it refuses.
Status check_gemm(std::string_view kernel,
                  const WeightShape& weights,
                  DType row_dtype,
                  const device::Properties& limits);
GroupedGemmConfig make_config(const GroupedGemmShape& shape,
                              int tile_tokens,
                              const device::Properties& limits);
/// Pure and deterministic. Requires can_run(...).ok().
GroupedGemmConfig select_config(const GroupedGemmShape& shape, const device::Properties& limits);
/// Enqueues and returns. Reads the counts on the device; rows past them are not touched.
Status launch(const GroupedGemmShape& shape,
              const GroupedGemmConfig& config,
              const GroupedGemmArgs& args,
              CUstream_st* stream);

/// Shared memory: a ring of stages of 64 columns, the epilogue's staging, and the tables of the
/// experts.
inline constexpr int kGemmMaxExperts = 384;
inline constexpr int kGemmWarpStaging = 2 * 512;
/// m64 tiles of each consumer warpgroup; four are a CTA's 256 weight rows.
HALFBYTE_HOST_DEVICE constexpr int gemm_tiles_per_warpgroup(int tile_tokens) {
  return tile_tokens > 64 ? 2 : 1;
}
HALFBYTE_HOST_DEVICE constexpr int gemm_num_consumer_warps(int tile_tokens) {
  return 16 / gemm_tiles_per_warpgroup(tile_tokens);
}
HALFBYTE_HOST_DEVICE constexpr int gemm_staging_bytes(int tile_tokens) {
  return gemm_num_consumer_warps(tile_tokens) * kGemmWarpStaging;
}
HALFBYTE_HOST_DEVICE constexpr int gemm_stage_bytes(int tile_tokens) {
  return tile_tokens * 128 + 2 * kSlabBytes + 16;
}
/// The queue's barriers and tiles of 24 bytes, and the tables.
inline constexpr int kGemmQueueDepth = 4;
inline constexpr int kGemmQueueBytes = kGemmQueueDepth * (16 + 24);
HALFBYTE_HOST_DEVICE constexpr int gemm_table_bytes(int num_experts) {
  return kGemmQueueBytes + (6 * num_experts + 2) * 4;
}
/// Stages that a warp multiplies without a branch, at places of the ring that are constants but for
/// the group's: narrow products leave no time for more instructions. Every tile starts a group.
HALFBYTE_HOST_DEVICE constexpr int gemm_stages_per_group(int tile_tokens) {
  return gemm_tiles_per_warpgroup(tile_tokens) == 1 ? 4 : 1;
}
HALFBYTE_HOST_DEVICE constexpr int gemm_num_stages(int tile_tokens) {
  const int beside =
      1024 + gemm_staging_bytes(tile_tokens) + gemm_table_bytes(kGemmMaxExperts) + 64;
  const int group = gemm_stages_per_group(tile_tokens);
  return (227 * 1024 - beside) / gemm_stage_bytes(tile_tokens) / group * group;
}

}  // namespace halfbyte::sm90

#endif  // HALFBYTE_KERNELS_CUDA_SM90_GROUPED_GEMM_BF16_NVFP4_H_

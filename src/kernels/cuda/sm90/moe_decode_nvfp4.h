// SPDX-License-Identifier: Apache-2.0
//
// Both GEMMs of the experts in one launch, for few rows per expert, in modes w4a16, w4a4 and w4a8.
// Correct for every distribution of rows. Host only: no CUDA header.
#ifndef HALFBYTE_KERNELS_CUDA_SM90_MOE_DECODE_NVFP4_H_
#define HALFBYTE_KERNELS_CUDA_SM90_MOE_DECODE_NVFP4_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "device/properties.h"
#include "formats/host_device.h"
#include "formats/sm90_fp8_layout.h"
#include "halfbyte/dtype.h"
#include "halfbyte/moe.h"
#include "kernels/cuda/common/nvfp4_quantize.h"
#include "kernels/cuda/sm90/e4m3_rows.h"

struct CUstream_st;

namespace halfbyte::sm90 {

/// What x and h are, and with it the layout of the weights.
enum class DecodeTokens : std::uint8_t {
  kBf16,  // w4a16: formats/sm90_layout.h
  kGrid,  // w4a4: bf16 values on the NVFP4 grid (grid_tokens.h), with the portable sigmoid; the
          // same
  kE4m3   // w4a8: E4M3 values in fp16 with a scale per 128 columns (e4m3_rows.h);
          // formats/sm90_fp8_layout.h
};

struct MoeDecodeShape {
  int num_local_experts = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;  // of this rank
  bool gated = true;
  DType row_dtype = DType::kF32;  // kF32 or kBf16
  double expected_rows = 0;       // of all local experts, in the step that is planned
  double expected_experts = 0;    // with at least one row
  DecodeTokens tokens = DecodeTokens::kBf16;

  WeightLayout layout_of(const WeightShape& shape) const {
    return tokens == DecodeTokens::kE4m3 ? fp8_layout(shape) : WeightLayout{shape};
  }
  WeightLayout gate_up() const {
    return layout_of({num_local_experts, gated ? 2 : 1, intermediate_size, hidden_size});
  }
  WeightLayout down() const {
    return layout_of({num_local_experts, 1, hidden_size, intermediate_size});
  }
  /// Columns of h: intermediate_size and its padding, which the kernel writes.
  std::int64_t h_cols() const { return gate_up().padded_half_rows(); }
  /// Blocks of columns of h that share a scale, of kE4m3.
  std::int64_t h_blocks() const { return (h_cols() + kFp8BlockCols - 1) / kFp8BlockCols; }
  /// Of the kernel's counters: two, an expert's, and of kE4m3 a block's of an expert.
  std::int64_t num_counters() const {
    const std::int64_t blocks = tokens == DecodeTokens::kE4m3 ? h_blocks() : 0;
    return 2 + num_local_experts * (1 + blocks);
  }
};

/// What a CTA works on at a time: 32 * row_groups weight rows, 8 * token_blocks tokens. Its 8 warps
/// are row_groups x (8 / row_groups); those of one row group share a stage's columns.
struct MoeDecodeTile {
  int row_groups = 0;
  int token_blocks = 0;
  int cells_per_warp = 0;  // of one stage
  int num_stages = 0;

  HALFBYTE_HOST_DEVICE constexpr int warps_per_group() const { return 8 / row_groups; }
  HALFBYTE_HOST_DEVICE constexpr int stage_cells() const {
    return warps_per_group() * cells_per_warp;
  }
  HALFBYTE_HOST_DEVICE constexpr int stage_cols() const { return stage_cells() * kCellCols; }
  HALFBYTE_HOST_DEVICE constexpr int weight_bytes() const {
    return row_groups * stage_cells() * kCellBytes;
  }
  /// Behind the columns 16 bytes, so that the next token's lie in other banks; of kE4m3 they hold
  /// the scales of four blocks.
  HALFBYTE_HOST_DEVICE constexpr int token_row_bytes() const { return 2 * stage_cols() + 16; }
  HALFBYTE_HOST_DEVICE constexpr int token_bytes() const {
    return 8 * token_blocks * token_row_bytes();
  }
  HALFBYTE_HOST_DEVICE constexpr int num_fragments() const { return 2 * token_blocks; }
  /// Warps of a row group that finish h. Its two fragments of a token block are 16 features, which
  /// one warp quantises.
  HALFBYTE_HOST_DEVICE constexpr int finishers(DecodeTokens tokens) const {
    const int parts = tokens == DecodeTokens::kGrid ? token_blocks : num_fragments();
    return warps_per_group() < parts ? warps_per_group() : parts;
  }
  HALFBYTE_HOST_DEVICE constexpr int reduce_bytes() const { return 8 * num_fragments() * 512; }
  HALFBYTE_HOST_DEVICE constexpr int shared_bytes(int num_experts) const {
    return num_stages * (weight_bytes() + token_bytes() + 16) + reduce_bytes() + token_row_bytes() +
           (3 * num_experts + 4) * 4;
  }
  bool operator==(const MoeDecodeTile&) const = default;
};

struct MoeDecodeConfig {
  MoeDecodeTile tile;
  int shared_bytes = 0;
  int num_ctas = 0;
  bool operator==(const MoeDecodeConfig&) const = default;
  std::string to_string() const;
};

/// Device pointers, 16-byte aligned. Routes of expert e are rows expert_offset[e] and following.
struct MoeDecodeArgs {
  const void* x = nullptr;                      // [tokens, hidden_size], see DecodeTokens
  const std::int32_t* route_row = nullptr;      // [routes]: row of x; null: row r of route r
  const std::int64_t* expert_offset = nullptr;  // [num_local_experts + 1]
  const std::int32_t* expert_count = nullptr;   // [num_local_experts]
  const std::uint8_t* gate_up = nullptr;        // gate_up().bytes()
  const std::uint8_t* down = nullptr;           // down().bytes()
  const float* alpha_gate = nullptr;            // [num_local_experts]; null when not gated
  const float* alpha_up = nullptr;              // [num_local_experts]
  const float* alpha_down = nullptr;            // [num_local_experts]
  ActivationSpec activation;
  void* h = nullptr;                 // [routes, h_cols()], see DecodeTokens; scratch
  void* rows = nullptr;              // [routes, hidden_size] of row_dtype; unweighted
  std::int32_t* counters = nullptr;  // [num_counters()], see reset_counters
  // Of kGrid.
  const cuda::QuantizeScale* h_scale = nullptr;  // [1]
  // Of kE4m3.
  const float* x_block_scale = nullptr;   // [tokens, block_scale_stride(hidden_size)]
  const float* gate_up_factor = nullptr;  // [num_local_experts, gate_up().rows()], in stored order
  const float* down_factor = nullptr;     // [num_local_experts, down().rows()], likewise
  float* h_f32 = nullptr;                 // [routes, h_cols()]: h before it is quantised; scratch
  float* h_block_scale = nullptr;         // [routes, block_scale_stride(h_cols())]; scratch
};

/// Up to this many rows an expert with any, on average, this kernel is the faster one; above it,
/// grouped_gemm_bf16_nvfp4 (docs/performance-sm90.md).
inline constexpr double kMaxDecodeRowsPerExpert = 20;
/// The same of kE4m3 and grouped_gemm_fp8_nvfp4.
inline constexpr double kMaxFp8DecodeRowsPerExpert = 6;

Status can_run(const MoeDecodeShape& shape, const device::Properties& limits);
/// Every tile that is compiled; each can be forced, and each is correct for every shape.
std::span<const MoeDecodeTile> list_moe_decode_tiles();
/// A config for a given tile.
MoeDecodeConfig make_config(const MoeDecodeShape& shape,
                            const MoeDecodeTile& tile,
                            const device::Properties& limits);
/// Pure and deterministic. Requires can_run(...).ok().
MoeDecodeConfig select_config(const MoeDecodeShape& shape, const device::Properties& limits);

/// Zeroes the counters: once after allocation, and after a step that did not complete. Each launch
/// leaves them zero.
Status reset_counters(const MoeDecodeShape& shape, std::int32_t* counters, CUstream_st* stream);
/// One-time work: shared-memory limits.
Status warm_up(const MoeDecodeShape& shape, const MoeDecodeConfig& config);
/// Enqueues and returns. Reads the counts on the device; rows past them are not touched.
Status launch(const MoeDecodeShape& shape,
              const MoeDecodeConfig& config,
              const MoeDecodeArgs& args,
              CUstream_st* stream);

}  // namespace halfbyte::sm90

#endif  // HALFBYTE_KERNELS_CUDA_SM90_MOE_DECODE_NVFP4_H_

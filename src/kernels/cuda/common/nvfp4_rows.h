// SPDX-License-Identifier: Apache-2.0
//
// What surrounds a grouped GEMM of NVFP4 x NVFP4: quantise the tokens, group them by expert,
// activate and quantise again, apply the scales of rows. Host only: no CUDA header.
#ifndef HALFBYTE_KERNELS_CUDA_COMMON_NVFP4_ROWS_H_
#define HALFBYTE_KERNELS_CUDA_COMMON_NVFP4_ROWS_H_

#include <cstdint>

#include "formats/layout.h"
#include "halfbyte/moe.h"
#include "halfbyte/status.h"

struct CUstream_st;

namespace halfbyte::cuda {

/// Rows of tokens as a grouped GEMM reads them, one a route: codes without gaps between rows; the
/// block scales of an expert in blocks of 128 rows x 4 scales that start anew with each expert.
/// Columns past `cols`, up to what the weights are padded to, are zeros, and so are their scales;
/// rows of a block past the expert's last are not written, and no route reads them.
struct Nvfp4Operand {
  std::int64_t cols = 0;         // a multiple of 16
  std::int64_t padded_cols = 0;  // a multiple of 32
  std::int64_t scale_cols = 0;   // a multiple of 4

  HALFBYTE_HOST_DEVICE constexpr std::int64_t row_bytes() const { return padded_cols / 2; }
  /// Scales of 128 rows.
  HALFBYTE_HOST_DEVICE constexpr std::int64_t block_bytes() const { return 128 * scale_cols; }
  /// Byte of a scale: `first_block` is the expert's first block of 128 rows.
  HALFBYTE_HOST_DEVICE constexpr std::int64_t scale_offset(std::int64_t first_block,
                                                           std::int64_t row,
                                                           std::int64_t group) const {
    return first_block * block_bytes() + blocked_128x4_offset(row, group, scale_cols / 4);
  }
};
/// The operand that a product with these weights takes.
HALFBYTE_HOST_DEVICE constexpr Nvfp4Operand operand_of(const WeightLayout& weights) {
  return {weights.shape.cols, weights.padded_cols, weights.scale_cols};
}
/// Blocks of 128 rows of any distribution of `max_routes` routes over `num_experts` experts.
HALFBYTE_HOST_DEVICE constexpr std::int64_t max_scale_blocks(std::int64_t max_routes,
                                                             std::int64_t num_experts) {
  return max_routes < num_experts ? max_routes : (max_routes + 127 * num_experts) / 128;
}

/// The routes of a step, in device memory. Route r of expert e: expert_offset[e] <= r <
/// expert_offset[e] + expert_count[e].
struct RouteTable {
  const std::int64_t* expert_offset = nullptr;  // [num_experts + 1]
  const std::int32_t* expert_count = nullptr;   // [num_experts]
  const std::int32_t* first_block = nullptr;    // [num_experts]: Nvfp4Operand::scale_offset
  const std::int32_t* route_row = nullptr;      // [routes]; null: row r
  int num_experts = 0;
  std::int64_t max_routes = 0;  // what the host knows: at most so many
};

struct RoutePlace {
  int expert = -1;       // -1: between two experts
  std::int64_t row = 0;  // of the expert
};
/// Where route `route` < expert_offset[num_experts] lies. Of experts that start alike the last has
/// the routes.
HALFBYTE_HOST_DEVICE constexpr RoutePlace place_route(const std::int64_t* expert_offset,
                                                      const std::int32_t* expert_count,
                                                      int num_experts,
                                                      std::int64_t route) {
  int low = 0;
  for (int high = num_experts; high - low > 1;) {
    const int middle = (low + high) / 2;
    (expert_offset[middle] <= route ? low : high) = middle;
  }
  const std::int64_t row = route - expert_offset[low];
  return row >= 0 && row < expert_count[low] ? RoutePlace{low, row} : RoutePlace{};
}

/// Every function below enqueues and returns; kUnsupported in a build without CUDA.

/// Tokens, each once, in the linear layout.
struct QuantizeRowsArgs {
  const void* x = nullptr;              // bf16 [num_rows, cols]
  const float* scale = nullptr;         // [1], decode-side; null: each row finds its own
  std::uint8_t* codes = nullptr;        // [num_rows, cols / 2]
  std::uint8_t* block_scale = nullptr;  // [num_rows, cols / 16]
  float* row_scale = nullptr;           // [num_rows]; written when `scale` is null
};
Status launch_quantize_rows(std::int64_t num_rows,
                            std::int64_t cols,
                            const QuantizeRowsArgs& args,
                            CUstream_st* stream);

/// Rows of tokens to rows of routes.
struct GatherRowsArgs {
  RouteTable routes;
  const std::uint8_t* codes = nullptr;        // [tokens, cols / 2]
  const std::uint8_t* block_scale = nullptr;  // [tokens, cols / 16]
  std::uint8_t* route_codes = nullptr;        // [routes, operand.row_bytes()]
  std::uint8_t* route_scale = nullptr;        // [blocks, operand.block_bytes()]
};
Status launch_gather_rows(const Nvfp4Operand& operand,
                          const GatherRowsArgs& args,
                          CUstream_st* stream);

/// Where the sum of column `col` of up lies among a route's sums; gated, that of gate lies 64
/// columns later.
HALFBYTE_HOST_DEVICE constexpr std::int64_t up_sum_column(std::int64_t col, bool gated) {
  return gated ? col / 64 * 128 + col % 64 : col;
}

/// Sums of gate and up to h, quantised.
struct ActivateRowsArgs {
  RouteTable routes;
  const float* sums = nullptr;  // [routes, sum_cols], no scalar applied
  std::int64_t sum_cols = 0;
  ActivationSpec activation;
  // [num_experts]: alphas; with row scales: global scales. Of gate null: not gated.
  const float* gate_scale = nullptr;
  const float* up_scale = nullptr;
  const float* row_scale = nullptr;     // [tokens]; null: gate_scale and up_scale are alphas
  const float* h_scale = nullptr;       // [1], decode-side; null: each route finds its own
  std::uint8_t* codes = nullptr;        // [routes, operand.row_bytes()]
  std::uint8_t* block_scale = nullptr;  // [blocks, operand.block_bytes()]
  float* h_row_scale = nullptr;         // [routes]; written when h_scale is null
};
Status launch_activate_rows(const Nvfp4Operand& operand,
                            const ActivateRowsArgs& args,
                            CUstream_st* stream);

/// rows[r] *= row_alpha(global_scale[expert of r], row_scale[r]), in place.
struct ScaleRowsArgs {
  RouteTable routes;
  float* rows = nullptr;                // [routes, cols]
  const float* global_scale = nullptr;  // [num_experts]
  const float* row_scale = nullptr;     // [routes]
};
Status launch_scale_rows(std::int64_t cols, const ScaleRowsArgs& args, CUstream_st* stream);

}  // namespace halfbyte::cuda

#endif  // HALFBYTE_KERNELS_CUDA_COMMON_NVFP4_ROWS_H_

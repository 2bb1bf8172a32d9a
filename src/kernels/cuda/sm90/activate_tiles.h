// SPDX-License-Identifier: Apache-2.0
//
// Sums of gate and up -> h on the NVFP4 grid with a scale of its own for every route, which is
// known when its whole row is: mode w4a4_dynamic. Host only: no CUDA header.
#ifndef HALFBYTE_KERNELS_CUDA_SM90_ACTIVATE_TILES_H_
#define HALFBYTE_KERNELS_CUDA_SM90_ACTIVATE_TILES_H_

#include <cstdint>

#include "halfbyte/moe.h"
#include "halfbyte/status.h"
#include "kernels/cuda/sm90/grouped_gemm_bf16_nvfp4.h"

struct CUstream_st;

namespace halfbyte::sm90 {

/// A block keeps its row of h in shared memory.
inline constexpr std::int64_t kMaxActivateCols = 32768;

/// Device pointers, 16-byte aligned.
struct ActivateTilesArgs {
  const float* sums = nullptr;                  // [routes, gate_up.output_cols()], no scale applied
  const std::int32_t* route_row = nullptr;      // [routes]: token; null: token r of route r
  const std::int64_t* expert_offset = nullptr;  // [num_experts + 1]
  const std::int32_t* expert_count = nullptr;   // [num_experts]
  ActivationSpec activation;
  const float* row_scale = nullptr;   // [tokens], of x
  const float* gate_scale = nullptr;  // [num_experts], global scales; null: not gated
  const float* up_scale = nullptr;    // [num_experts]
  const float* down_scale = nullptr;  // [num_experts]
  void* dst = nullptr;                // TokenTiles of h padded to 64 columns
  float* row_alpha = nullptr;         // [routes]: what the sums of the next product are times
};

/// Enqueues and returns. `gate_up` is the product that made the sums (kRows). Padding columns are
/// zero, and so are rows past a tile's last token up to the width; others are not written.
Status launch_activate_tiles(const GroupedGemmShape& gate_up,
                             std::int64_t max_routes,
                             int tile_tokens,
                             const ActivateTilesArgs& args,
                             CUstream_st* stream);

}  // namespace halfbyte::sm90

#endif  // HALFBYTE_KERNELS_CUDA_SM90_ACTIVATE_TILES_H_

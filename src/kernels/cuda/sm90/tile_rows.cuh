// SPDX-License-Identifier: Apache-2.0
//
// The rows of token tiles, for the kernels that write them.
#ifndef HALFBYTE_KERNELS_CUDA_SM90_TILE_ROWS_CUH_
#define HALFBYTE_KERNELS_CUDA_SM90_TILE_ROWS_CUH_

#include "kernels/cuda/common/expert_tiles.cuh"
#include "kernels/cuda/common/tile_order.cuh"
#include "kernels/cuda/sm90/token_tiles.h"

namespace halfbyte::sm90 {

/// Row `token` of a tile; `route` is -1 for the zeros that make a tile as wide as its product.
struct TileRow {
  int tile, token, expert, route;
};

/// Calls visit(row) for the rows of all tiles, as far as a product reads them. Each block along x
/// takes some parts of tiles, one after the other, because looking for a tile costs as much as a
/// row of it; of a part's rows, the block's `num_teams` teams of warps take turns.
template <typename Visit>
__device__ __forceinline__ void for_each_tile_row(const cuda::ExpertTiles& tiles,
                                                  const TokenTiles& shape,
                                                  int num_experts,
                                                  int team,
                                                  int num_teams,
                                                  Visit visit) {
  constexpr int kPartsPerBlock = 2;  // at least, with few tiles
  const int num_blocks = static_cast<int>(gridDim.x);
  const int num_tiles = tiles.tile_start[num_experts];
  const int most_parts = (shape.tile_tokens + num_teams - 1) / num_teams;
  const int parts = min(max(kPartsPerBlock * num_blocks / max(num_tiles, 1), 1), most_parts);
  for (int i = static_cast<int>(blockIdx.x); i < num_tiles * parts; i += num_blocks) {
    const int tile = i / parts;
    const int expert = cuda::find_tile(tiles, num_experts, 1, tile).expert;
    const int rows = cuda::rows_per_tile(tiles, expert);
    const int width = shape.width(rows);
    for (int token = i % parts * num_teams + team; token < width; token += parts * num_teams) {
      const int in_expert = (tile - tiles.tile_start[expert]) * rows + token;
      const bool present = token < rows && in_expert < tiles.count[expert];
      visit(TileRow{tile, token, expert, present ? tiles.offset[expert] + in_expert : -1});
    }
  }
}

/// Warps of a block's `num_warps` that share a row, so that few rows keep all of them busy. Both
/// are powers of two.
__device__ __forceinline__ int warps_per_row(const cuda::ExpertTiles& tiles,
                                             const TokenTiles& shape,
                                             int num_experts,
                                             int num_warps) {
  const int rows = max(tiles.tile_start[num_experts] * shape.tile_tokens, 1);
  const int warps = static_cast<int>(gridDim.x) * num_warps;
  int shared_by = 1;
  while (shared_by < num_warps && rows * shared_by < warps)
    shared_by *= 2;
  return shared_by;
}

/// Words of a block of 64 columns in shared memory: so that the four blocks of a round of 32 chunks
/// use different banks.
inline constexpr int kBlockWords = 40;

/// Chunk lane % 8 of its block, of the 16 bytes that each lane of a warp holds of a row, in order:
/// four pairs of columns, 16 apart. `staging` holds four blocks.
__device__ __forceinline__ uint4 permute_chunk(std::uint32_t* staging, uint4 in_order) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::uint32_t* const block = staging + lane / 8 * kBlockWords;
  *reinterpret_cast<uint4*>(block + lane % 8 * 4) = in_order;
  __syncwarp();
  const std::uint32_t* const pair = block + lane % 8;
  return make_uint4(pair[0], pair[8], pair[16], pair[24]);
}

}  // namespace halfbyte::sm90

#endif  // HALFBYTE_KERNELS_CUDA_SM90_TILE_ROWS_CUH_

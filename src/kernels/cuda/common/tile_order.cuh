// SPDX-License-Identifier: Apache-2.0
//
// The token tiles of a grouped GEMM that has a loop for each of several widths: an expert's rows
// are split evenly over its tiles, and experts are worked on by descending width, so that a CTA
// passes through its loops once.
#ifndef HALFBYTE_KERNELS_CUDA_COMMON_TILE_ORDER_CUH_
#define HALFBYTE_KERNELS_CUDA_COMMON_TILE_ORDER_CUH_

#include "kernels/cuda/common/expert_tiles.cuh"

namespace halfbyte::cuda {

/// Rows of each of an expert's tiles but the last: a multiple of 8, so no tile is empty.
__device__ __forceinline__ int rows_per_tile(const ExpertTiles& tiles, int expert) {
  const int num_tiles = tiles.tile_start[expert + 1] - tiles.tile_start[expert];
  if (num_tiles == 0) return 0;
  return ((tiles.count[expert] + num_tiles - 1) / num_tiles + 7) / 8 * 8;
}

/// In shared memory.
struct TileOrder {
  std::int32_t* start;   // [experts + 1]: token tiles before the expert of this rank
  std::int32_t* expert;  // [experts]: by rank
  std::int32_t* width;   // [experts]: by expert
  static __host__ __device__ constexpr int words(int num_experts) { return 3 * num_experts + 1; }
};

__device__ __forceinline__ TileOrder place_tile_order(std::int32_t* memory, int num_experts) {
  return {memory, memory + num_experts + 1, memory + 2 * num_experts + 1};
}

/// Called by all kThreads threads after build_expert_tiles. `width_of(rows)` is the loop that takes
/// a tile of that many rows.
template <int kThreads, typename WidthOf>
__device__ void build_tile_order(const TileOrder& order,
                                 const ExpertTiles& tiles,
                                 int num_experts,
                                 WidthOf width_of) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int e = thread; e < num_experts; e += kThreads)
    order.width[e] = width_of(rows_per_tile(tiles, e));
  if (thread == 0) order.start[num_experts] = tiles.tile_start[num_experts];
  __syncthreads();
  for (int e = thread; e < num_experts; e += kThreads) {
    const int width = order.width[e];
    int rank = 0;
    int start = 0;
    for (int other = 0; other < num_experts; ++other) {
      const int w = order.width[other];
      if (w < width || (w == width && other >= e)) continue;
      ++rank;
      start += tiles.tile_start[other + 1] - tiles.tile_start[other];
    }
    order.expert[rank] = e;
    order.start[rank] = start;
  }
  __syncthreads();
}

/// Tile `index` of the ordered list, as find_tile does it: rank by rank, then row tile by row tile.
__device__ __forceinline__ TileIndex find_ordered_tile(const TileOrder& order,
                                                       int num_experts,
                                                       int row_tiles,
                                                       int index) {
  const ExpertTiles by_rank = {order.start, nullptr, nullptr};
  TileIndex tile = find_tile(by_rank, num_experts, row_tiles, index);
  tile.expert = order.expert[tile.expert];
  return tile;
}

}  // namespace halfbyte::cuda

#endif  // HALFBYTE_KERNELS_CUDA_COMMON_TILE_ORDER_CUH_

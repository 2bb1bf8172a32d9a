// SPDX-License-Identifier: Apache-2.0
//
// The token tiles of a grouped GEMM that has a loop for each of several widths: an expert's rows
// are split evenly over its tiles, and experts are worked on by descending width, so that a CTA
// passes through its loops once.
#ifndef HALFBYTE_KERNELS_CUDA_COMMON_TILE_ORDER_CUH_
#define HALFBYTE_KERNELS_CUDA_COMMON_TILE_ORDER_CUH_

#include "kernels/cuda/common/expert_tiles.cuh"
#include "kernels/cuda/common/warp_sum.cuh"

namespace halfbyte::cuda {

__device__ __forceinline__ int num_token_tiles(const ExpertTiles& tiles, int expert) {
  return tiles.tile_start[expert + 1] - tiles.tile_start[expert];
}

/// Rows of each of an expert's tiles but the last: a multiple of 8, so no tile is empty.
__device__ __forceinline__ int rows_per_tile(const ExpertTiles& tiles, int expert) {
  const int num_tiles = num_token_tiles(tiles, expert);
  if (num_tiles == 0) return 0;
  return ((tiles.count[expert] + num_tiles - 1) / num_tiles + 7) / 8 * 8;
}

/// In shared memory. Experts without rows have no rank.
struct TileOrder {
  std::int32_t* start;   // [experts + 1]: token tiles before the expert of this rank, or all
  std::int32_t* expert;  // [experts]: by rank
  std::int32_t* width;   // [experts]: by expert
  static __host__ __device__ constexpr int words(int num_experts) { return 3 * num_experts + 1; }
};

__device__ __forceinline__ TileOrder place_tile_order(std::int32_t* memory, int num_experts) {
  return {memory, memory + num_experts + 1, memory + 2 * num_experts + 1};
}

/// One warp. Ranks the experts of `width`, in order, behind the wider ones; a lane has a few
/// experts, one after the other. Rolled up: a CTA fetches each instruction of this for one use.
__device__ __forceinline__ void rank_experts_of_width(const TileOrder& order,
                                                      const ExpertTiles& tiles,
                                                      int num_experts,
                                                      int width) {
  const int each = (num_experts + 31) / 32;
  const int first = static_cast<int>(threadIdx.x) % 32 * each;
  const int end = min(first + each, num_experts);
  int wider = 0, wider_tiles = 0;
  int rank = 0, start = 0;  // first the lane's own
#pragma unroll 1
  for (int e = first; e < end; ++e) {
    const int num_tiles = num_token_tiles(tiles, e);
    wider += order.width[e] > width ? 1 : 0;
    wider_tiles += order.width[e] > width ? num_tiles : 0;
    rank += order.width[e] == width ? 1 : 0;
    start += order.width[e] == width ? num_tiles : 0;
  }
  rank = __reduce_add_sync(~0U, wider) + inclusive_warp_sum(rank) - rank;
  start = __reduce_add_sync(~0U, wider_tiles) + inclusive_warp_sum(start) - start;
#pragma unroll 1
  for (int e = first; e < end; ++e) {
    if (order.width[e] != width) continue;
    order.expert[rank] = e;
    order.start[rank] = start;
    ++rank;
    start += num_token_tiles(tiles, e);
  }
}

/// Called by all kThreads threads after build_expert_tiles. `width_of(rows)` is the loop that takes
/// a tile of that many rows: a multiple of 16 up to kWidest, or 0 without rows.
template <int kThreads, int kWidest, typename WidthOf>
__device__ void build_tile_order(const TileOrder& order,
                                 const ExpertTiles& tiles,
                                 int num_experts,
                                 WidthOf width_of) {
  static_assert(kWidest / 16 <= kThreads / 32);
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (int e = thread; e < num_experts; e += kThreads)
    order.width[e] = width_of(rows_per_tile(tiles, e));
#pragma unroll 1
  for (int i = thread; i <= num_experts; i += kThreads)
    order.start[i] = tiles.tile_start[num_experts];
  __syncthreads();
  const int width = kWidest - thread / 32 * 16;
  if (width > 0) rank_experts_of_width(order, tiles, num_experts, width);
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

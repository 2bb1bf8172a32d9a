// SPDX-License-Identifier: Apache-2.0
//
// The tiles of a grouped GEMM from the experts' counts, worked out by every CTA for itself.
#ifndef HALFBYTE_KERNELS_CUDA_COMMON_EXPERT_TILES_CUH_
#define HALFBYTE_KERNELS_CUDA_COMMON_EXPERT_TILES_CUH_

#include <cstdint>

#include "kernels/cuda/common/warp_sum.cuh"

namespace halfbyte::cuda {

/// In shared memory.
struct ExpertTiles {
  std::int32_t* tile_start;  // [experts + 1]: token tiles before an expert
  std::int32_t* offset;      // [experts]: first route
  std::int32_t* count;       // [experts]: routes
  static __host__ __device__ constexpr int words(int num_experts) { return 3 * num_experts + 1; }
};

struct TileIndex {
  int expert, row_tile, token_tile;
};

__device__ __forceinline__ ExpertTiles place_expert_tiles(std::int32_t* memory, int num_experts) {
  return {memory, memory + num_experts + 1, memory + 2 * num_experts + 1};
}

/// Called by all kThreads threads; each has a few experts, one after the other.
template <int kThreads>
__device__ void build_expert_tiles(const ExpertTiles& tiles,
                                   int num_experts,
                                   const std::int64_t* expert_offset,
                                   const std::int32_t* expert_count,
                                   int tokens_per_tile) {
  constexpr int kMaxExperts = 512;
  constexpr int kEach = (kMaxExperts + kThreads - 1) / kThreads;
  __shared__ int warp_sum[kThreads / 32];
  const int thread = static_cast<int>(threadIdx.x);
  int count[kEach] = {};
  int sum = 0;
  for (int i = 0; i < kEach; ++i) {
    const int expert = kEach * thread + i;
    if (expert >= num_experts) continue;
    const int routes = __ldcg(expert_count + expert);
    tiles.count[expert] = routes;
    tiles.offset[expert] = static_cast<int>(__ldcg(expert_offset + expert));
    count[i] = (routes + tokens_per_tile - 1) / tokens_per_tile;
    sum += count[i];
  }
  sum = inclusive_warp_sum(sum);
  if (thread % 32 == 31) warp_sum[thread / 32] = sum;
  __syncthreads();
  sum += __reduce_add_sync(~0U, thread % 32 < thread / 32 ? warp_sum[thread % 32] : 0);
  // Expert e's end is e + 1's start.
  for (int i = kEach - 1; i >= 0; --i) {
    const int expert = kEach * thread + i;
    if (expert < num_experts) tiles.tile_start[expert + 1] = sum;
    sum -= count[i];
  }
  if (thread == 0) tiles.tile_start[0] = 0;
  __syncthreads();
}

/// Tile `index` of the list: expert by expert, then row tile by row tile, so that tiles which share
/// weights are neighbours and the second finds them in L2.
__device__ __forceinline__ TileIndex find_tile(const ExpertTiles& tiles,
                                               int num_experts,
                                               int row_tiles,
                                               int index) {
  const int token_tile = index / row_tiles;
  int low = 0;
  for (int high = num_experts; high - low > 1;) {
    const int middle = (low + high) / 2;
    (tiles.tile_start[middle] <= token_tile ? low : high) = middle;
  }
  const int in_expert = index - tiles.tile_start[low] * row_tiles;
  const int token_tiles = tiles.tile_start[low + 1] - tiles.tile_start[low];
  return {low, in_expert / token_tiles, in_expert % token_tiles};
}

}  // namespace halfbyte::cuda

#endif  // HALFBYTE_KERNELS_CUDA_COMMON_EXPERT_TILES_CUH_

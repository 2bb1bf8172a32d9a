// SPDX-License-Identifier: Apache-2.0
//
// How the warps of a grouped GEMM tell each other what to work on: the thread that copies a tile's
// weights says which tile it is, and the warps that multiply take the tiles in that order.
#ifndef HALFBYTE_KERNELS_CUDA_SM90_TILE_QUEUE_CUH_
#define HALFBYTE_KERNELS_CUDA_SM90_TILE_QUEUE_CUH_

#include <cstdint>

#include "kernels/cuda/common/ring_position.cuh"
#include "kernels/cuda/common/tile_order.cuh"
#include "kernels/cuda/ptx/mbarrier.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/sm90/grouped_gemm_bf16_nvfp4.h"

namespace halfbyte::sm90 {

/// Widths of the products of a kernel, descending.
template <int... kWidths>
struct WidthList {};

/// `image` is the token tile's number in expert order, which says where its tokens and its h lie.
/// A width of 0 ends the queue.
struct Tile {
  int expert, row_cell, image, first_route, num_tokens, width;
};

/// The tile of the ordered list's entry `at`, from weight cell `row_cell` on.
__device__ __forceinline__ Tile make_tile(const cuda::ExpertTiles& tiles,
                                          const cuda::TileOrder& order,
                                          const cuda::TileIndex& at,
                                          int row_cell) {
  const int rows = cuda::rows_per_tile(tiles, at.expert);
  const int first = at.token_tile * rows;
  return {at.expert,
          row_cell,
          tiles.tile_start[at.expert] + at.token_tile,
          tiles.offset[at.expert] + first,
          min(rows, tiles.count[at.expert] - first),
          order.width[at.expert]};
}

using QueuePosition = cuda::RingPosition<kGemmQueueDepth>;

/// In shared memory: kGemmQueueDepth tiles, and two barriers for each.
struct TileQueue {
  std::uint32_t full = 0;  // addresses of the barriers
  std::uint32_t empty = 0;
  Tile* tiles = nullptr;

  static_assert(kGemmQueueDepth * (2 * 8 + sizeof(Tile)) == kGemmQueueBytes);

  __device__ __forceinline__ void init_barriers(int num_consumer_warps) const {
    for (int i = 0; i < kGemmQueueDepth; ++i) {
      ptx::init_barrier(full + 8 * i, 1);
      ptx::init_barrier(empty + 8 * i, num_consumer_warps);
    }
  }
  /// One thread.
  __device__ __forceinline__ void push(QueuePosition& at, const Tile& tile) const {
    ptx::wait(empty + 8 * at.slot, at.parity ^ 1);
    tiles[at.slot] = tile;
    ptx::arrive(full + 8 * at.slot);
    at.advance();
  }
  /// A warp; the tile stays.
  __device__ __forceinline__ int next_width(const QueuePosition& at) const {
    ptx::wait(full + 8 * at.slot, at.parity);
    return ptx::uniform(tiles[at.slot].width);
  }
  /// A warp, after next_width().
  __device__ __forceinline__ Tile pop(QueuePosition& at) const {
    const Tile t = tiles[at.slot];
    const Tile tile = {ptx::uniform(t.expert),     ptx::uniform(t.row_cell),
                       ptx::uniform(t.image),      ptx::uniform(t.first_route),
                       ptx::uniform(t.num_tokens), ptx::uniform(t.width)};
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::arrive(empty + 8 * at.slot);
    at.advance();
    return tile;
  }
};

}  // namespace halfbyte::sm90

#endif  // HALFBYTE_KERNELS_CUDA_SM90_TILE_QUEUE_CUH_

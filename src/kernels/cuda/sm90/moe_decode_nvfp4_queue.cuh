// SPDX-License-Identifier: Apache-2.0
//
// How the producer of moe_decode_nvfp4 tells the other warps of its CTA what to work on.
#ifndef HALFBYTE_KERNELS_CUDA_SM90_MOE_DECODE_NVFP4_QUEUE_CUH_
#define HALFBYTE_KERNELS_CUDA_SM90_MOE_DECODE_NVFP4_QUEUE_CUH_

#include "kernels/cuda/common/expert_tiles.cuh"
#include "kernels/cuda/common/ring_position.cuh"
#include "kernels/cuda/ptx/mbarrier.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/sm90/moe_decode_nvfp4_store.cuh"

namespace halfbyte::sm90::moe_decode {

using QueuePosition = cuda::RingPosition<kQueueDepth>;

/// Offsets into dynamic shared memory, and the small static part.
struct SharedStorage {
  std::uint32_t weights, tokens, zero_row, full, empty, queue_full, queue_empty;
  float* reduce;
  cuda::ExpertTiles tiles;
  Work* queue;
};

__device__ __forceinline__ Work find_work(const Params& p,
                                          const SharedStorage& s,
                                          int gemm,
                                          int index) {
  const cuda::TileIndex tile =
      cuda::find_tile(s.tiles, p.num_experts, p.gemm[gemm].row_tiles, index);
  return {gemm, tile.expert, tile.row_tile, tile.token_tile};
}

__device__ __forceinline__ void push(const SharedStorage& s,
                                     QueuePosition& position,
                                     const Work& work) {
  ptx::wait(s.queue_empty + 8 * position.slot, position.parity ^ 1);
  s.queue[position.slot] = work;
  ptx::arrive(s.queue_full + 8 * position.slot);
  position.advance();
}

__device__ __forceinline__ Work pop(const SharedStorage& s, QueuePosition& position) {
  ptx::wait(s.queue_full + 8 * position.slot, position.parity);
  Work work = s.queue[position.slot];
  work = {ptx::uniform(work.gemm), ptx::uniform(work.expert), ptx::uniform(work.row_tile),
          ptx::uniform(work.token_tile)};
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::arrive(s.queue_empty + 8 * position.slot);
  position.advance();
  return work;
}

}  // namespace halfbyte::sm90::moe_decode

#endif  // HALFBYTE_KERNELS_CUDA_SM90_MOE_DECODE_NVFP4_QUEUE_CUH_

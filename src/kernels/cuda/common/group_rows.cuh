// SPDX-License-Identifier: Apache-2.0
//
// A block owns consecutive slots, a warp of it consecutive slots of those. Counts go up the
// hierarchy (warp, block, all), offsets come down, and a warp places its slots in order.
#ifndef HALFBYTE_KERNELS_CUDA_COMMON_GROUP_ROWS_CUH_
#define HALFBYTE_KERNELS_CUDA_COMMON_GROUP_ROWS_CUH_

#include "kernels/cuda/common/group_rows.h"
#include "kernels/cuda/common/warp_sum.cuh"
#include "kernels/cuda/ptx/cluster.cuh"
#include "kernels/cuda/ptx/memory.cuh"

namespace halfbyte::cuda::group_rows {

inline constexpr int kNumWarps = 16;
inline constexpr int kNumThreads = 32 * kNumWarps;
inline constexpr int kSlotsPerLane = kGroupRowsSlotsPerBlock / kNumThreads;

struct Params {
  GroupRowsArgs args;
  std::int64_t num_tokens;
  std::int64_t num_experts;
  std::int64_t first_expert;
  std::int32_t* block_counts;  // [blocks, experts]; null when the blocks are a cluster
  int top_k;
  int num_local_experts;
  int num_slots;
  int num_blocks;
};

struct SharedStorage {
  std::int32_t* warp_count;  // [kNumWarps, experts], then offsets
  std::int32_t* in_block;    // [experts]: this block's slots
  std::int32_t* base;        // [experts]: first route of an expert's slots in this block
};

__device__ __forceinline__ SharedStorage shared_storage(const Params& p) {
  extern __shared__ std::int32_t shared[];
  std::int32_t* const in_block = shared + kNumWarps * p.num_local_experts;
  return {shared, in_block, in_block + p.num_local_experts};
}

/// Local expert of a slot, or -1.
__device__ __forceinline__ int local_expert(const Params& p, int slot, std::int64_t num_valid) {
  if (slot >= p.num_slots || slot / p.top_k >= num_valid) return -1;
  const std::int64_t id = p.args.topk_idx[slot];
  if (id < 0 || id >= p.num_experts) return -1;
  const std::int64_t local = id - p.first_expert;
  return local >= 0 && local < p.num_local_experts ? static_cast<int>(local) : -1;
}

__device__ __forceinline__ std::int64_t num_valid_tokens(const Params& p) {
  return p.args.num_valid_tokens == nullptr ? p.num_tokens : *p.args.num_valid_tokens;
}

/// First slot of this warp.
__device__ __forceinline__ int first_slot(const Params& p) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  return (static_cast<int>(blockIdx.x) * kNumWarps + warp) * 32 * kSlotsPerLane;
}

/// Local experts of a lane's slots: of its warp's slots 32 * i + lane.
struct LaneSlots {
  int expert[kSlotsPerLane];
};
__device__ __forceinline__ LaneSlots load_slots(const Params& p) {
  const std::int64_t num_valid = num_valid_tokens(p);
  const int begin = first_slot(p) + static_cast<int>(threadIdx.x) % 32;
  LaneSlots slots;
#pragma unroll
  for (int i = 0; i < kSlotsPerLane; ++i)
    slots.expert[i] = local_expert(p, begin + 32 * i, num_valid);
  return slots;
}

__device__ void count_slots(const Params& p, const SharedStorage& s, const LaneSlots& slots) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kNumWarps * p.num_local_experts; i += kNumThreads)
    s.warp_count[i] = 0;
  __syncthreads();
  std::int32_t* count = s.warp_count + thread / 32 * p.num_local_experts;
#pragma unroll
  for (int i = 0; i < kSlotsPerLane; ++i) {
    if (slots.expert[i] >= 0) atomicAdd(count + slots.expert[i], 1);
  }
  __syncthreads();
}

/// Turns one expert's counts of the warps into offsets within the block; returns their sum.
__device__ __forceinline__ int scan_warps(const Params& p, const SharedStorage& s, int expert) {
  int count[kNumWarps];
#pragma unroll
  for (int w = 0; w < kNumWarps; ++w)
    count[w] = s.warp_count[w * p.num_local_experts + expert];
  int sum = 0;
#pragma unroll
  for (int w = 0; w < kNumWarps; ++w) {
    s.warp_count[w * p.num_local_experts + expert] = sum;
    sum += count[w];
  }
  return sum;
}

/// Exclusive sum over the block's threads; every thread calls it.
__device__ int exclusive_block_sum(int value, int* total) {
  __shared__ int warp_sum[kNumWarps];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int sum = inclusive_warp_sum(value);
  if (lane == 31) warp_sum[warp] = sum;
  __syncthreads();
  int before = 0;
  int all = 0;
  for (int w = 0; w < kNumWarps; ++w) {
    before += w < warp ? warp_sum[w] : 0;
    all += warp_sum[w];
  }
  *total = all;
  return before + sum - value;
}

/// An expert's slots in all blocks, and in those before this one.
struct ExpertCount {
  int all, before;
  __device__ __forceinline__ void add(int block, int slots) {
    all += slots;
    before += block < static_cast<int>(blockIdx.x) ? slots : 0;
  }
};

/// From the first launch, or from the cluster. The first loop has no branch: its loads overlap.
__device__ __forceinline__ ExpertCount count_expert(const Params& p,
                                                    const SharedStorage& s,
                                                    int expert) {
  ExpertCount count = {};
  if (p.block_counts != nullptr) {
#pragma unroll 8
    for (int b = 0; b < p.num_blocks; ++b)
      count.add(b, p.block_counts[b * p.num_local_experts + expert]);
    return count;
  }
  for (int b = 0; b < p.num_blocks; ++b) {
    const bool own = b == static_cast<int>(blockIdx.x);
    count.add(
        b, own ? s.in_block[expert] : ptx::load_from(ptx::shared_address(s.in_block + expert), b));
  }
  return count;
}

/// Sets base[] and, in block 0, the tables of experts; returns all routes.
__device__ int place_experts(const Params& p, const SharedStorage& s) {
  const int expert = static_cast<int>(threadIdx.x);
  const bool active = expert < p.num_local_experts;
  const ExpertCount count = active ? count_expert(p, s, expert) : ExpertCount{};
  int num_routes = 0;
  const int offset = exclusive_block_sum(count.all, &num_routes);
  if (active) s.base[expert] = offset + count.before;
  if (blockIdx.x == 0) {
    if (active) p.args.expert_offset[expert] = offset;
    if (active) p.args.expert_count[expert] = count.all;
    if (expert == 0) p.args.expert_offset[p.num_local_experts] = num_routes;
  }
  __syncthreads();
  return num_routes;
}

__device__ void place_slots(const Params& p,
                            const SharedStorage& s,
                            const LaneSlots& slots,
                            int num_routes) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::int32_t* offset = s.warp_count + static_cast<int>(threadIdx.x) / 32 * p.num_local_experts;
#pragma unroll
  for (int i = 0; i < kSlotsPerLane; ++i) {
    const int slot = first_slot(p) + 32 * i + lane;
    if (slot - lane >= p.num_slots) break;
    const int expert = slots.expert[i];
    const unsigned same = __match_any_sync(~0U, expert);
    const int rank = __popc(same & ((1U << lane) - 1));
    int route = -1;
    if (expert >= 0) {
      route = s.base[expert] + offset[expert] + rank;
      p.args.route_row[route] = slot / p.top_k;
    }
    __syncwarp();
    if (expert >= 0 && rank == 0) offset[expert] += __popc(same);
    __syncwarp();
    if (slot >= p.num_slots) continue;
    p.args.slot_route[slot] = route;
    if (slot >= num_routes) p.args.route_row[slot] = -1;
  }
}

__global__ void __launch_bounds__(kNumThreads) count_kernel(const Params p) {
  ptx::launch_next_kernel();
  ptx::wait_for_previous_kernel();
  const SharedStorage s = shared_storage(p);
  count_slots(p, s, load_slots(p));
  const int expert = static_cast<int>(threadIdx.x);
  if (expert < p.num_local_experts) {
    p.block_counts[static_cast<int>(blockIdx.x) * p.num_local_experts + expert] =
        scan_warps(p, s, expert);
  }
}

__global__ void __launch_bounds__(kNumThreads) place_kernel(const Params p) {
  ptx::launch_next_kernel();
  ptx::wait_for_previous_kernel();
  const SharedStorage s = shared_storage(p);
  const LaneSlots slots = load_slots(p);
  count_slots(p, s, slots);
  const int expert = static_cast<int>(threadIdx.x);
  if (expert < p.num_local_experts) s.in_block[expert] = scan_warps(p, s, expert);
  const bool cluster = p.block_counts == nullptr && p.num_blocks > 1;
  if (cluster) ptx::cluster_barrier();
  const int num_routes = place_experts(p, s);
  place_slots(p, s, slots, num_routes);
  if (cluster) ptx::cluster_barrier();  // nobody leaves whose counts others read
}

}  // namespace halfbyte::cuda::group_rows

#endif  // HALFBYTE_KERNELS_CUDA_COMMON_GROUP_ROWS_CUH_

// SPDX-License-Identifier: Apache-2.0
//
// A block sums columns of one token. Its slots are first sorted by (group, slot); then the tree
// over 16 groups is evaluated left to right: `waiting[l]` is a left subtree whose right sibling,
// split from it at bit l of the group number, is being summed.
#ifndef HALFBYTE_KERNELS_CUDA_SM90_COMBINE_ROWS_CUH_
#define HALFBYTE_KERNELS_CUDA_SM90_COMBINE_ROWS_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/sm90/combine_rows.h"

namespace halfbyte::sm90::combine_rows {

inline constexpr int kMaxSlots = 64;
inline constexpr int kNumGroups = 16;
inline constexpr int kNumLevels = 4;
inline constexpr int kPrefetch = 4;

struct Params {
  CombineRowsArgs args;
  std::int64_t hidden_size;
  int num_experts;
  int columns_per_block;
  int top_k;
  DType row_dtype;
  DType y_dtype;
};

/// One addition of the program: a row, its weight, and what follows it.
struct Step {
  std::int32_t route;
  float weight;
  bool first;     // of its group
  int end_level;  // -1: more of this group; l: the next group splits off at bit l; 4: the last
};

struct SharedStorage {
  int group[kMaxSlots];
  Step step[kMaxSlots];
  int num_steps;
};

/// The expert's part when all experts are split over 16, the first ones holding one more.
__device__ __forceinline__ int group_of(int expert, int num_experts) {
  const int base = num_experts / kNumGroups;
  const int larger = num_experts % kNumGroups;
  if (expert < larger * (base + 1)) return expert / (base + 1);
  return larger + (expert - larger * (base + 1)) / base;
}

/// Position of slot i among the present ones in (group, slot) order.
__device__ __forceinline__ int rank_of(const SharedStorage& s, int top_k, int slot) {
  int rank = 0;
  for (int i = 0; i < top_k; ++i) {
    const int group = s.group[i];
    rank += group >= 0 && (group < s.group[slot] || (group == s.group[slot] && i < slot)) ? 1 : 0;
  }
  return rank;
}

__device__ void build_program(const Params& p, std::int64_t token, bool valid, SharedStorage& s) {
  const int slot = static_cast<int>(threadIdx.x);
  const std::int64_t index = token * p.top_k + slot;
  const int route = slot < p.top_k && valid ? p.args.slot_route[index] : -1;
  const int expert = slot < p.top_k ? p.args.topk_idx[index] : 0;
  const float weight = slot < p.top_k ? p.args.topk_weights[index] : 0.0F;
  if (slot < p.top_k) s.group[slot] = route < 0 ? -1 : group_of(expert, p.num_experts);
  if (slot == 0) s.num_steps = 0;
  __syncthreads();
  __shared__ int sorted_group[kMaxSlots];
  if (route >= 0) {
    const int rank = rank_of(s, p.top_k, slot);
    s.step[rank].route = route;
    s.step[rank].weight = weight;
    sorted_group[rank] = s.group[slot];
    atomicAdd(&s.num_steps, 1);
  }
  __syncthreads();
  if (slot < s.num_steps) {
    const int group = sorted_group[slot];
    const int next = slot + 1 < s.num_steps ? sorted_group[slot + 1] : -1;
    s.step[slot].first = slot == 0 || sorted_group[slot - 1] != group;
    s.step[slot].end_level = next < 0 ? kNumLevels : next == group ? -1 : 31 - __clz(next ^ group);
  }
  __syncthreads();
}

__device__ __forceinline__ float4 load_row(const Params& p, std::int64_t offset) {
  if (p.row_dtype == DType::kF32)
    return __ldcg(reinterpret_cast<const float4*>(static_cast<const float*>(p.args.rows) + offset));
  const uint2 v = __ldcg(
      reinterpret_cast<const uint2*>(static_cast<const __nv_bfloat16*>(p.args.rows) + offset));
  return {__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xFFFF0000U),
          __uint_as_float(v.y << 16), __uint_as_float(v.y & 0xFFFF0000U)};
}

__device__ __forceinline__ float4 add(float4 a, float4 b) {
  return {__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y), __fadd_rn(a.z, b.z), __fadd_rn(a.w, b.w)};
}
__device__ __forceinline__ float4 scale(float w, float4 v) {
  return {__fmul_rn(w, v.x), __fmul_rn(w, v.y), __fmul_rn(w, v.z), __fmul_rn(w, v.w)};
}
__device__ __forceinline__ float4 scale_add(float w, float4 v, float4 acc) {
  return {__fmaf_rn(w, v.x, acc.x), __fmaf_rn(w, v.y, acc.y), __fmaf_rn(w, v.z, acc.z),
          __fmaf_rn(w, v.w, acc.w)};
}

struct Tree {
  float4 acc = {};
  float4 waiting[kNumLevels] = {};
  unsigned occupied = 0;

  __device__ __forceinline__ void take(const Step& step, float4 row) {
    acc = step.first ? scale(step.weight, row) : scale_add(step.weight, row, acc);
    if (step.end_level >= 0) close(step.end_level);
  }
  __device__ __forceinline__ void close(int level) {
#pragma unroll
    for (int l = 0; l < kNumLevels; ++l) {
      if (l < level && (occupied >> l & 1U) != 0) acc = add(waiting[l], acc);
      if (l == level) waiting[l] = acc;
    }
    occupied = (occupied & ~((1U << level) - 1)) | (1U << level);
  }
};

__device__ __forceinline__ float4 sum_steps(const Params& p,
                                            const SharedStorage& s,
                                            std::int64_t col) {
  Tree tree;
  for (int begin = 0; begin < s.num_steps; begin += kPrefetch) {
    float4 row[kPrefetch];
#pragma unroll
    for (int i = 0; i < kPrefetch; ++i) {
      if (begin + i < s.num_steps)
        row[i] = load_row(p, s.step[begin + i].route * p.hidden_size + col);
    }
#pragma unroll
    for (int i = 0; i < kPrefetch; ++i) {
      if (begin + i < s.num_steps) tree.take(s.step[begin + i], row[i]);
    }
  }
  return tree.acc;
}

template <typename Half2>
__device__ __forceinline__ uint2 bits(Half2 low, Half2 high) {
  return {*reinterpret_cast<unsigned*>(&low), *reinterpret_cast<unsigned*>(&high)};
}

__device__ __forceinline__ void store(const Params& p, std::int64_t offset, float4 v) {
  if (p.y_dtype == DType::kF32) {
    *reinterpret_cast<float4*>(static_cast<float*>(p.args.y) + offset) = v;
  } else if (p.y_dtype == DType::kBf16) {
    *reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(p.args.y) + offset) =
        bits(__floats2bfloat162_rn(v.x, v.y), __floats2bfloat162_rn(v.z, v.w));
  } else {
    *reinterpret_cast<uint2*>(static_cast<__half*>(p.args.y) + offset) =
        bits(__floats2half2_rn(v.x, v.y), __floats2half2_rn(v.z, v.w));
  }
}

__device__ __forceinline__ void combine_columns(
    const Params& p, const SharedStorage& s, std::int64_t token, bool valid, std::int64_t col) {
  const std::int64_t offset = token * p.hidden_size + col;
  float4 sum = sum_steps(p, s, col);
  if (p.args.shared_rows != nullptr && valid) {
    const float4 shared = *reinterpret_cast<const float4*>(p.args.shared_rows + offset);
    sum = s.num_steps > 0 ? add(sum, shared) : shared;
  }
  store(p, offset, sum);
}

/// Tokens with one row here, most of them when experts are spread over ranks: several columns'
/// loads in flight make up for the missing rows.
__device__ void combine_single(const Params& p,
                               const SharedStorage& s,
                               std::int64_t token,
                               std::int64_t begin,
                               std::int64_t end) {
  constexpr int kUnroll = 4;
  const std::int64_t stride = blockDim.x * 4;
  const std::int64_t from = s.step[0].route * p.hidden_size;
  for (std::int64_t col = begin + threadIdx.x * 4; col < end; col += kUnroll * stride) {
    float4 row[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i)
      row[i] = col + i * stride < end ? load_row(p, from + col + i * stride) : float4{};
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      if (col + i * stride < end)
        store(p, token * p.hidden_size + col + i * stride, scale(s.step[0].weight, row[i]));
    }
  }
}

/// Grid: (tokens, column blocks); a thread sums four columns at a time.
__global__ void __launch_bounds__(256, 5) combine_kernel(const Params p) {
  __shared__ SharedStorage s;
  ptx::launch_next_kernel();
  ptx::wait_for_previous_kernel();
  const std::int64_t token = blockIdx.x;
  const bool valid = p.args.num_valid_tokens == nullptr || token < *p.args.num_valid_tokens;
  build_program(p, token, valid, s);
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * p.columns_per_block;
  const std::int64_t end = min(begin + p.columns_per_block, p.hidden_size);
  if (s.num_steps == 1 && p.args.shared_rows == nullptr) {
    combine_single(p, s, token, begin, end);
    return;
  }
  for (std::int64_t col = begin + threadIdx.x * 4; col < end; col += blockDim.x * 4)
    combine_columns(p, s, token, valid, col);
}

}  // namespace halfbyte::sm90::combine_rows

#endif  // HALFBYTE_KERNELS_CUDA_SM90_COMBINE_ROWS_CUH_

// SPDX-License-Identifier: Apache-2.0
//
// A warp sums the columns of one token, or a part of them, eight columns a lane. It first sorts the
// token's slots by (group, slot); then the tree over 16 groups is evaluated left to right:
// `waiting[l]` is a left subtree whose right sibling, split from it at bit l of the group number,
// is being summed.
#ifndef HALFBYTE_KERNELS_CUDA_COMMON_COMBINE_ROWS_CUH_
#define HALFBYTE_KERNELS_CUDA_COMMON_COMBINE_ROWS_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/common/combine_rows.h"
#include "kernels/cuda/ptx/memory.cuh"

namespace halfbyte::cuda::combine_rows {

inline constexpr int kMaxSlots = 64;
inline constexpr int kNumGroups = 16;
inline constexpr int kNumLevels = 4;
inline constexpr int kNumWarps = 4;
inline constexpr int kColumns = 8;  // a lane

struct Params {
  CombineRowsArgs args;
  std::int64_t num_tokens;
  std::int64_t hidden_size;
  int num_experts;
  int columns_per_warp;
  int parts;  // of a token
  int top_k;
  DType y_dtype;
};

/// One addition of the program: a row, its weight, and what follows it.
struct Step {
  std::int32_t route;
  float weight;
  bool first;     // of its group
  int end_level;  // -1: more of this group; l: the next group splits off at bit l; 4: the last
};

/// A warp's.
struct SharedStorage {
  int group[kMaxSlots];
  int sorted_group[kMaxSlots];
  Step step[kMaxSlots];
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
  const int mine = s.group[slot];
  int rank = 0;
  for (int i = 0; i < top_k; ++i) {
    const int group = s.group[i];
    rank += group >= 0 && (group < mine || (group == mine && i < slot)) ? 1 : 0;
  }
  return rank;
}

/// Writes the steps of a token that has any route; returns their number.
__device__ __forceinline__ int build_program(const Params& p,
                                             std::int64_t token,
                                             SharedStorage& s) {
  constexpr int kParts = kMaxSlots / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int route[kParts];
  float weight[kParts];
  int num_steps = 0;
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const int slot = 32 * i + lane;
    const std::int64_t index = token * p.top_k + slot;
    route[i] = slot < p.top_k ? p.args.slot_route[index] : -1;
    weight[i] = slot < p.top_k ? p.args.topk_weights[index] : 0.0F;
    const int expert = slot < p.top_k ? p.args.topk_idx[index] : 0;
    s.group[slot] = route[i] < 0 ? -1 : group_of(expert, p.num_experts);
    num_steps += __popc(__ballot_sync(~0U, route[i] >= 0));
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    if (route[i] < 0) continue;
    const int rank = rank_of(s, p.top_k, 32 * i + lane);
    s.step[rank].route = route[i];
    s.step[rank].weight = weight[i];
    s.sorted_group[rank] = s.group[32 * i + lane];
  }
  __syncwarp();
  for (int i = lane; i < num_steps; i += 32) {
    const int group = s.sorted_group[i];
    const int next = i + 1 < num_steps ? s.sorted_group[i + 1] : -1;
    s.step[i].first = i == 0 || s.sorted_group[i - 1] != group;
    s.step[i].end_level = next < 0 ? kNumLevels : next == group ? -1 : 31 - __clz(next ^ group);
  }
  __syncwarp();
  return num_steps;
}

/// Rows in memory: how eight columns lie there, and how many of those a lane has in flight.
template <bool kRowsF32>
struct Rows {
  static constexpr int kPrefetch = kRowsF32 ? 4 : 8;
  uint4 part[kRowsF32 ? 2 : 1];
};
struct Columns {
  float v[kColumns];
};

template <bool kRowsF32>
__device__ __forceinline__ Rows<kRowsF32> load_row(const Params& p, std::int64_t offset) {
  const auto* src = reinterpret_cast<const uint4*>(static_cast<const std::uint8_t*>(p.args.rows) +
                                                   offset * (kRowsF32 ? 4 : 2));
  if constexpr (kRowsF32)
    return {{__ldcg(src), __ldcg(src + 1)}};
  else
    return {{__ldcg(src)}};
}

template <bool kRowsF32>
__device__ __forceinline__ Columns widen(const Rows<kRowsF32>& rows) {
  Columns c;
#pragma unroll
  for (int part = 0; part < (kRowsF32 ? 2 : 1); ++part) {
    const uint4 raw = rows.part[part];
    const std::uint32_t word[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (kRowsF32) {
        c.v[4 * part + i] = __uint_as_float(word[i]);
      } else {
        c.v[2 * i] = __uint_as_float(word[i] << 16);
        c.v[2 * i + 1] = __uint_as_float(word[i] & 0xFFFF0000U);
      }
    }
  }
  return c;
}

__device__ __forceinline__ void add(Columns& a, const Columns& b) {
#pragma unroll
  for (int i = 0; i < kColumns; ++i)
    a.v[i] = __fadd_rn(b.v[i], a.v[i]);
}

struct Tree {
  Columns acc = {};
  Columns waiting[kNumLevels] = {};
  unsigned occupied = 0;

  __device__ __forceinline__ void take(const Step& step, const Columns& row) {
    if (step.first) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i)
        acc.v[i] = __fmul_rn(step.weight, row.v[i]);
    } else {
#pragma unroll
      for (int i = 0; i < kColumns; ++i)
        acc.v[i] = __fmaf_rn(step.weight, row.v[i], acc.v[i]);
    }
    if (step.end_level >= 0) close(step.end_level);
  }
  __device__ __forceinline__ void close(int level) {
#pragma unroll
    for (int l = 0; l < kNumLevels; ++l) {
      if (l < level && (occupied >> l & 1U) != 0) add(acc, waiting[l]);
      if (l == level) waiting[l] = acc;
    }
    occupied = (occupied & ~((1U << level) - 1)) | (1U << level);
  }
};

template <bool kRowsF32>
__device__ __forceinline__ Columns
sum_steps(const Params& p, const SharedStorage& s, int num_steps, std::int64_t col) {
  constexpr int kPrefetch = Rows<kRowsF32>::kPrefetch;
  Tree tree;
#pragma unroll 1
  for (int begin = 0; begin < num_steps; begin += kPrefetch) {
    Rows<kRowsF32> row[kPrefetch];
#pragma unroll
    for (int i = 0; i < kPrefetch; ++i) {
      if (begin + i < num_steps)
        row[i] = load_row<kRowsF32>(p, s.step[begin + i].route * p.hidden_size + col);
    }
#pragma unroll
    for (int i = 0; i < kPrefetch; ++i) {
      if (begin + i < num_steps) tree.take(s.step[begin + i], widen(row[i]));
    }
  }
  return tree.acc;
}

template <typename Half2>
__device__ __forceinline__ std::uint32_t bits(Half2 pair) {
  return *reinterpret_cast<std::uint32_t*>(&pair);
}

__device__ __forceinline__ void store(const Params& p, std::int64_t offset, const Columns& c) {
  const float* v = c.v;
  if (p.y_dtype == DType::kF32) {
    auto* dst = reinterpret_cast<float4*>(static_cast<float*>(p.args.y) + offset);
    dst[0] = make_float4(v[0], v[1], v[2], v[3]);
    dst[1] = make_float4(v[4], v[5], v[6], v[7]);
    return;
  }
  std::uint32_t pair[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    pair[i] = p.y_dtype == DType::kBf16 ? bits(__floats2bfloat162_rn(v[2 * i], v[2 * i + 1]))
                                        : bits(__floats2half2_rn(v[2 * i], v[2 * i + 1]));
  }
  *reinterpret_cast<uint4*>(static_cast<std::uint16_t*>(p.args.y) + offset) =
      make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

__device__ __forceinline__ Columns load_shared_row(const Params& p, std::int64_t offset) {
  const auto* src = reinterpret_cast<const float4*>(p.args.shared_rows + offset);
  const float4 low = src[0];
  const float4 high = src[1];
  return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
}

__device__ __forceinline__ Columns weigh(float weight, const Columns& row) {
  Columns c;
#pragma unroll
  for (int i = 0; i < kColumns; ++i)
    c.v[i] = __fmul_rn(weight, row.v[i]);
  return c;
}

/// Eight columns of a token, the shared row included.
template <bool kRowsF32>
__device__ __forceinline__ void combine_columns(const Params& p,
                                                const SharedStorage& s,
                                                int num_steps,
                                                bool valid,
                                                std::int64_t token,
                                                std::int64_t col) {
  const std::int64_t offset = token * p.hidden_size + col;
  Columns sum = sum_steps<kRowsF32>(p, s, num_steps, col);
  if (p.args.shared_rows != nullptr && valid) {
    const Columns shared = load_shared_row(p, offset);
    if (num_steps > 0)
      add(sum, shared);
    else
      sum = shared;
  }
  store(p, offset, sum);
}

/// The sum of at most kSteps steps whose rows are there; of one or two without a Tree.
template <bool kRowsF32, int kSteps>
__device__ __forceinline__ Columns sum_few(const Step* step,
                                           int num_steps,
                                           const Rows<kRowsF32> (&row)[kSteps]) {
  if constexpr (kSteps <= 2) {
    Columns sum = weigh(step[0].weight, widen(row[0]));
    if constexpr (kSteps == 2) {
      const Columns second = widen(row[1]);
      if (step[1].first) {
        add(sum, weigh(step[1].weight, second));
      } else {
#pragma unroll
        for (int i = 0; i < kColumns; ++i)
          sum.v[i] = __fmaf_rn(step[1].weight, second.v[i], sum.v[i]);
      }
    }
    return sum;
  } else {
    Tree tree;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (i < num_steps) tree.take(step[i], widen(row[i]));
    }
    return tree.acc;
  }
}

/// Tokens with few rows here, most of them when experts are spread over ranks: several columns'
/// loads in flight make up for the missing rows.
template <bool kRowsF32, int kSteps>
__device__ __forceinline__ void combine_few(const Params& p,
                                            const SharedStorage& s,
                                            int num_steps,
                                            std::int64_t token,
                                            std::int64_t begin,
                                            std::int64_t end) {
  constexpr int kUnroll = Rows<kRowsF32>::kPrefetch / kSteps;
  constexpr int kStride = 32 * kColumns;
#pragma unroll 1
  for (std::int64_t col = begin; col < end; col += kUnroll * kStride) {
    Rows<kRowsF32> row[kUnroll][kSteps];
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const std::int64_t from = i < num_steps ? s.step[i].route * p.hidden_size + col : 0;
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (i < num_steps && col + u * kStride < end)
          row[u][i] = load_row<kRowsF32>(p, from + u * kStride);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (col + u * kStride >= end) break;
      store(p, token * p.hidden_size + col + u * kStride,
            sum_few<kRowsF32, kSteps>(s.step, num_steps, row[u]));
    }
  }
}

template <bool kRowsF32>
__device__ __forceinline__ void combine_many(const Params& p,
                                             const SharedStorage& s,
                                             int num_steps,
                                             bool valid,
                                             std::int64_t token,
                                             std::int64_t begin,
                                             std::int64_t end) {
  for (std::int64_t col = begin; col < end; col += 32 * kColumns)
    combine_columns<kRowsF32>(p, s, num_steps, valid, token, col);
}

/// A warp takes a part of a token.
template <bool kRowsF32>
__global__ void __launch_bounds__(32 * kNumWarps, 4)
    combine_kernel(const __grid_constant__ Params p) {
  __shared__ SharedStorage storage[kNumWarps];
  ptx::launch_next_kernel();
  ptx::wait_for_previous_kernel();
  const int warp = ptx::uniform(static_cast<int>(threadIdx.x) / 32);
  const std::int64_t index = std::int64_t{blockIdx.x} * kNumWarps + warp;
  const std::int64_t token = index / p.parts;
  if (token >= p.num_tokens) return;
  SharedStorage& s = storage[warp];
  const bool valid = p.args.num_valid_tokens == nullptr || token < *p.args.num_valid_tokens;
  const int num_steps = ptx::uniform(valid ? build_program(p, token, s) : 0);
  const std::int64_t first = index % p.parts * p.columns_per_warp;
  const std::int64_t end = min(first + p.columns_per_warp, p.hidden_size);
  const std::int64_t begin = first + static_cast<int>(threadIdx.x) % 32 * kColumns;
  const bool few = num_steps > 0 && p.args.shared_rows == nullptr;
  if (few && num_steps == 1)
    combine_few<kRowsF32, 1>(p, s, 1, token, begin, end);
  else if (few && num_steps == 2)
    combine_few<kRowsF32, 2>(p, s, 2, token, begin, end);
  else if (few && num_steps <= 4)
    combine_few<kRowsF32, 4>(p, s, num_steps, token, begin, end);
  else
    combine_many<kRowsF32>(p, s, num_steps, valid, token, begin, end);
}

}  // namespace halfbyte::cuda::combine_rows

#endif  // HALFBYTE_KERNELS_CUDA_COMMON_COMBINE_ROWS_CUH_

// SPDX-License-Identifier: Apache-2.0
//
// A warp routes a row, with its experts in shared memory: lane l has experts l, l + 32 and so on.
// What experts are chosen by becomes an integer key that orders as the scores do.
#include "kernels/cuda/common/route_rows.h"

#include <cuda_runtime_api.h>

#include <cfloat>

#include "base/checked.h"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/portable_activation.h"
#include "kernels/cuda/ptx/memory.cuh"

namespace halfbyte::cuda {
namespace {

constexpr int kNumWarps = 4;
constexpr unsigned kAllLanes = ~0U;
constexpr int kSlotsPerLane = 2;

struct Params {
  RouteRowsArgs args;
  RouteRowsShape shape;
  int num_experts;
  int top_k;
};

/// One row in shared memory.
struct Row {
  float* weight;             // [num_experts]: the logit first, then p times a row's divisor
  std::uint32_t* key;        // [num_experts]: of the score; 0: may not be chosen
  std::uint32_t* group_key;  // [num_groups]
};

__device__ __forceinline__ int lane() {
  return static_cast<int>(threadIdx.x) % 32;
}

__device__ __forceinline__ float never() {
  return -INFINITY;
}

/// Grows with `value`, which is not NaN; both zeros have one key, and no value has 0.
__device__ __forceinline__ std::uint32_t key_of(float value) {
  const std::uint32_t bits = bits_of(value + 0.0F);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000U;
}
__device__ __forceinline__ float value_of(std::uint32_t key) {
  return float_of(key >> 31 != 0 ? key & 0x7FFFFFFFU : ~key);
}

__device__ float portable_log1p(float u) {
  const float s = u / (2.0F + u);
  const float q = s * s;
  float p = fmaf(1.0F / 13.0F, q, 1.0F / 11.0F);
  p = fmaf(p, q, 1.0F / 9.0F);
  p = fmaf(p, q, 1.0F / 7.0F);
  p = fmaf(p, q, 1.0F / 5.0F);
  p = fmaf(p, q, 1.0F / 3.0F);
  p = fmaf(p, q, 1.0F);
  return 2.0F * (s * p);
}
__device__ float portable_softplus(float x) {
  return fmaxf(x, 0.0F) + portable_log1p(portable_exp(-fabsf(x)));
}

/// Logits without NaN and +inf, as weights; returns the largest. Several loads at a time.
__device__ float load_logits(const Params& p, std::int64_t token, const Row& row) {
  constexpr int kLoads = 8;
  const float* logits = p.args.logits + token * p.args.logits_stride;
  std::uint32_t largest = 0;
  for (int first = lane(); first < p.num_experts; first += 32 * kLoads) {
    float raw[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      raw[i] = first + 32 * i < p.num_experts ? __ldg(logits + first + 32 * i) : never();
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const float logit = raw[i] != raw[i] ? never() : fminf(raw[i], FLT_MAX);
      if (first + 32 * i < p.num_experts) row.weight[first + 32 * i] = logit;
      largest = max(largest, key_of(logit));
    }
  }
  return value_of(__reduce_max_sync(kAllLanes, largest));
}

/// By softmax the score is the logit, and p its exponential over the sum, which is returned.
__device__ float score_by_softmax(const Params& p, float largest, const Row& row) {
  for (int e = lane(); e < p.num_experts; e += 32) {
    const float logit = row.weight[e];
    row.key[e] = key_of(logit);
    row.weight[e] = logit == never() ? 0.0F : portable_exp(logit - largest);
  }
  __syncwarp();
  float sum = 0.0F;
#pragma unroll 8
  for (int e = 0; e < p.num_experts; ++e)
    sum += row.weight[e];
  return sum;
}

__device__ void score_each(const Params& p, const Row& row) {
  for (int e = lane(); e < p.num_experts; e += 32) {
    const float logit = row.weight[e];
    float weight = 0.0F;
    if (logit != never()) {
      weight = p.shape.method == RoutingMethod::kSqrtSoftplus ? sqrtf(portable_softplus(logit))
                                                              : portable_sigmoid(logit);
    }
    float score = logit;
    if (p.shape.method != RoutingMethod::kLlama4)
      score = weight + (p.args.bias == nullptr ? 0.0F : p.args.bias[e]);
    // Whatever its bias, an expert at -inf ranks last.
    row.key[e] = key_of(logit == never() || score != score ? never() : score);
    row.weight[e] = weight;
  }
}

/// Of a group by itself: its largest score, or the sum of its two largest.
__device__ std::uint32_t score_group(const Params& p, const Row& row, int group) {
  const int size = p.num_experts / p.shape.num_groups;
  const std::uint32_t* members = row.key + group * size;
  std::uint32_t first = key_of(never());
  std::uint32_t second = first;
  for (int i = 0; i < size; ++i) {
    const std::uint32_t key = members[(i + group) % size];  // lanes at different banks
    second = max(second, min(first, key));
    first = max(first, key);
  }
  if (p.shape.method != RoutingMethod::kGroupedTop2) return first;
  // Clipped, so that a group with one usable expert beats one with none.
  return key_of(fmaxf(value_of(first), -FLT_MAX) + fmaxf(value_of(second), -FLT_MAX));
}

struct Best {
  std::uint32_t key = 0;
  int index = 0;
};

/// Of the lane's keys the largest, the first of equal ones.
__device__ Best find_best(const std::uint32_t* keys, int count) {
  Best best;
#pragma unroll 4
  for (int i = lane(); i < count; i += 32) {
    if (keys[i] > best.key) best = {keys[i], i};
  }
  return best;
}

/// Calls take(n, index) for the `count` largest of `keys` in descending order, the lower index
/// first of equal ones. Their keys are lost.
template <typename Take>
__device__ void take_best(std::uint32_t* keys, int num_keys, int count, Take take) {
  Best mine = find_best(keys, num_keys);
  for (int n = 0; n < count; ++n) {
    const std::uint32_t key = __reduce_max_sync(kAllLanes, mine.key);
    const unsigned candidate = mine.key == key ? static_cast<unsigned>(mine.index) : ~0U;
    const int index = static_cast<int>(__reduce_min_sync(kAllLanes, candidate));
    take(n, index);
    if (index % 32 != lane()) continue;
    keys[index] = 0;
    mine = find_best(keys, num_keys);
  }
}

/// Leaves the experts of the best groups to choose from.
__device__ void drop_groups(const Params& p, const Row& row) {
  for (int group = lane(); group < p.shape.num_groups; group += 32)
    row.group_key[group] = score_group(p, row, group);
  __syncwarp();
  // A kept group's key becomes 0.
  take_best(row.group_key, p.shape.num_groups, p.shape.topk_group, [](int, int) {});
  __syncwarp();
  const int size = p.num_experts / p.shape.num_groups;
  for (int e = lane(); e < p.num_experts; e += 32) {
    if (row.group_key[e / size] != 0) row.key[e] = 0;
  }
}

/// Weights in the order of the slots: of a lane those of slots `lane` and `lane + 32`.
__device__ void finish_weights(const Params& p, float (&weight)[kSlotsPerLane]) {
  float sum = 0.0F;
  if (p.shape.renormalize) {
    for (int slot = 0; slot < p.top_k; ++slot)
      sum += __shfl_sync(kAllLanes, slot < 32 ? weight[0] : weight[1], slot % 32);
  }
#pragma unroll
  for (float& w : weight) {
    if (p.shape.renormalize) w /= sum + 1e-20F;
    w *= p.shape.scale;
  }
}

__device__ void store(const Params& p,
                      std::int64_t token,
                      const int (&index)[kSlotsPerLane],
                      const float (&weight)[kSlotsPerLane]) {
#pragma unroll
  for (int i = 0; i < kSlotsPerLane; ++i) {
    const int slot = lane() + 32 * i;
    if (slot >= p.top_k) continue;
    p.args.topk_idx[token * p.top_k + slot] = index[i];
    p.args.topk_weights[token * p.top_k + slot] = weight[i];
  }
}

__device__ void route_row(const Params& p, std::int64_t token, const Row& row) {
  const float largest = load_logits(p, token, row);
  if (largest == never()) return store(p, token, {-1, -1}, {0.0F, 0.0F});
  float divisor = 1.0F;
  if (p.shape.softmax)
    divisor = score_by_softmax(p, largest, row);
  else
    score_each(p, row);
  __syncwarp();
  if (p.shape.num_groups > 1) drop_groups(p, row);
  int index[kSlotsPerLane] = {};
  float weight[kSlotsPerLane] = {};
  take_best(row.key, p.num_experts, p.top_k, [&](int slot, int expert) {
    if (slot == lane()) index[0] = expert;
    if (slot == lane() + 32) index[1] = expert;
  });
#pragma unroll
  for (int i = 0; i < kSlotsPerLane; ++i)
    weight[i] = row.weight[index[i]] / divisor;
  finish_weights(p, weight);
  store(p, token, index, weight);
}

__global__ void __launch_bounds__(32 * kNumWarps) route_kernel(const __grid_constant__ Params p) {
  extern __shared__ float shared[];
  ptx::launch_next_kernel();
  ptx::wait_for_previous_kernel();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * kNumWarps + warp;
  if (token >= p.shape.num_tokens) return;
  float* weight = shared + warp * (2 * p.num_experts + p.shape.num_groups);
  auto* key = reinterpret_cast<std::uint32_t*>(weight + p.num_experts);
  route_row(p, token, {weight, key, key + p.num_experts});
}

}  // namespace

Status launch(const RouteRowsShape& shape, const RouteRowsArgs& args, CUstream_st* stream) {
  if (shape.num_tokens == 0) return {};
  const Params params = {args, shape, static_cast<int>(shape.num_experts),
                         static_cast<int>(shape.top_k)};
  const auto shared_bytes = static_cast<std::size_t>(kNumWarps * route_row_bytes(shape));
  HALFBYTE_RETURN_IF_ERROR(allow_shared_bytes("route_rows", route_kernel, shared_bytes));
  const Grid grid = {dim3(static_cast<unsigned>(ceil_div(shape.num_tokens, kNumWarps))),
                     32 * kNumWarps, shared_bytes};
  return launch_overlapped("route_rows", route_kernel, grid, stream, params);
}

}  // namespace halfbyte::cuda

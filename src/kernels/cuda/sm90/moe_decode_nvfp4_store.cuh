// SPDX-License-Identifier: Apache-2.0
//
// What the sums of a tile of moe_decode_nvfp4 become: h, or rows.
#ifndef HALFBYTE_KERNELS_CUDA_SM90_MOE_DECODE_NVFP4_STORE_CUH_
#define HALFBYTE_KERNELS_CUDA_SM90_MOE_DECODE_NVFP4_STORE_CUH_

#include <cuda_bf16.h>

#include "kernels/cuda/common/activation.cuh"
#include "kernels/cuda/common/nvfp4_decode.cuh"
#include "kernels/cuda/common/portable_activation.h"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/sm90/e4m3_blocks.cuh"
#include "kernels/cuda/sm90/moe_decode_nvfp4.h"

namespace halfbyte::sm90::moe_decode {

inline constexpr int kNumThreads = 320;
inline constexpr int kNumConsumers = 8;
inline constexpr int kProducerWarp = 8;
inline constexpr int kGatherWarp = 9;
inline constexpr int kQueueDepth = 4;
inline constexpr int kEnd = -1;

struct Gemm {
  const std::uint8_t* weights;
  const float* row_factor;  // of kE4m3
  std::int64_t bytes_per_expert;
  int rows;
  int row_tiles;
  int col_cells;
};

struct Params {
  MoeDecodeArgs args;
  Gemm gemm[2];
  int num_experts;
  int hidden_size;
  int h_cols;
  bool gated;
  bool rows_f32;
  cuda::GatedActivation activation;
  int h_blocks;    // of kE4m3
  int h_arrivals;  // at an expert's counter when its h is complete: for each of its token tiles, or
                   // of kE4m3 for all
};

/// A tile of the queue: GEMM (or kEnd), expert, row tile, token tile.
struct Work {
  int gemm, expert, row_tile, token_tile;
};

__device__ __forceinline__ void store_pair(__nv_bfloat16* dst, float a, float b) {
  *reinterpret_cast<__nv_bfloat162*>(dst) = __floats2bfloat162_rn(a, b);
}

/// What the sums of stored rows `row` and row + 1 are multiplied with.
template <DecodeTokens kTokens>
__device__ __forceinline__ float2
row_factors(const Gemm& gemm, const float* alpha, int expert, int row) {
  if constexpr (kTokens == DecodeTokens::kE4m3) {
    const float2 factor =
        *reinterpret_cast<const float2*>(gemm.row_factor + std::int64_t{expert} * gemm.rows + row);
    return {alpha[expert] * factor.x, alpha[expert] * factor.y};
  } else {
    const float factor = alpha[expert] * cuda::kDecodedScale;
    return {factor, factor};
  }
}

/// Two neighbouring features of h; of kE4m3 as they are before they are quantised.
template <DecodeTokens kTokens>
__device__ __forceinline__ void store_features(
    const Params& p, std::int64_t route, int feature, float a, float b) {
  const std::int64_t at = route * p.h_cols + feature;
  if constexpr (kTokens == DecodeTokens::kE4m3)
    *reinterpret_cast<float2*>(p.args.h_f32 + at) = {a, b};
  else
    store_pair(static_cast<__nv_bfloat16*>(p.args.h) + at, a, b);
}

/// Activation of one fragment, for one token of this lane.
template <DecodeTokens kTokens>
__device__ __forceinline__ void store_h(
    const Params& p, std::int64_t route, int expert, int first_row, float4 sum) {
  const int row = first_row + 2 * (static_cast<int>(threadIdx.x) % 4);
  const Gemm& gemm = p.gemm[0];
  const float2 lower = row_factors<kTokens>(gemm, p.args.alpha_up, expert, row + 8);
  if (p.gated) {
    const float2 gate = row_factors<kTokens>(gemm, p.args.alpha_gate, expert, row);
    store_features<kTokens>(p, route, row - first_row / 2,
                            cuda::activate(p.activation, sum.x * gate.x, sum.z * lower.x),
                            cuda::activate(p.activation, sum.y * gate.y, sum.w * lower.y));
  } else {
    const float2 upper = row_factors<kTokens>(gemm, p.args.alpha_up, expert, row);
    store_features<kTokens>(p, route, row, cuda::relu2(sum.x * upper.x),
                            cuda::relu2(sum.y * upper.y));
    store_features<kTokens>(p, route, row + 8, cuda::relu2(sum.z * lower.x),
                            cuda::relu2(sum.w * lower.y));
  }
}

/// One warp: block `block` of h of the expert's routes, from h_f32, which other blocks wrote too.
__device__ __forceinline__ void quantize_h_block(const Params& p,
                                                 int first_route,
                                                 int num_routes,
                                                 int block) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int col = block * kFp8BlockCols + lane % kLanesPerBlock * kLaneCols;
  const std::int64_t scale_stride = block_scale_stride(p.h_cols);
  for (int first = 0; first < num_routes; first += kWarpBlocks) {
    const std::int64_t route = first_route + first + lane / kLanesPerBlock;
    const bool inside = route < first_route + num_routes && col < p.h_cols;
    const std::int64_t at = route * p.h_cols + col;
    float v[kLaneCols] = {};
    if (inside) {
#pragma unroll
      for (int i = 0; i < kLaneCols; i += 4) {
        const float4 four = __ldcg(reinterpret_cast<const float4*>(p.args.h_f32 + at + i));
        v[i] = four.x, v[i + 1] = four.y, v[i + 2] = four.z, v[i + 3] = four.w;
      }
    }
    const E4m3Block quantized = quantize_block(v);
    if (!inside) continue;
    store_f16(static_cast<__nv_bfloat16*>(p.args.h) + at, quantized.words);
    if (lane % kLanesPerBlock == 0)
      p.args.h_block_scale[route * scale_stride + block] = quantized.scale;
  }
}

/// Four of a token's 16 values on the NVFP4 grid, as bf16 pairs; the quad of lanes has the others.
struct QuadPairs {
  std::uint32_t first, second;
};
__device__ __forceinline__ QuadPairs grid_of_quad(const float (&h)[4],
                                                  const cuda::QuantizeScale& scale) {
  std::uint32_t amax_bits = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    amax_bits = cuda::larger(amax_bits, cuda::magnitude_bits(h[i]));
#pragma unroll
  for (int lanes = 1; lanes < 4; lanes *= 2)
    amax_bits = cuda::larger(amax_bits, __shfl_xor_sync(~0U, amax_bits, lanes));
  const cuda::BlockScale block = cuda::make_block_scale(amax_bits, scale);
  return {cuda::grid_pair(cuda::grid_value(h[0], block), cuda::grid_value(h[1], block)),
          cuda::grid_pair(cuda::grid_value(h[2], block), cuda::grid_value(h[3], block))};
}

/// A lane's two pairs of 16 features, eight apart.
__device__ __forceinline__ void store_quad(__nv_bfloat16* dst, bool present, QuadPairs pairs) {
  if (!present) return;
  auto* words = reinterpret_cast<std::uint32_t*>(dst + 2 * (threadIdx.x % 4));
  words[0] = pairs.first;
  words[4] = pairs.second;
}

/// Activation of 32 stored rows for this lane's token, quantised: 16 features, or 32 without a
/// gate. Called by whole warps.
__device__ __forceinline__ void store_quantized_h(const Params& p,
                                                  std::int64_t route,
                                                  bool present,
                                                  int expert,
                                                  int first_row,
                                                  const float4 (&sums)[2]) {
  auto* h = static_cast<__nv_bfloat16*>(p.args.h) + route * p.h_cols;
  const float up = p.args.alpha_up[expert] * cuda::kDecodedScale;
  const cuda::QuantizeScale scale = *p.args.h_scale;
  if (p.gated) {
    const float gate = p.args.alpha_gate[expert] * cuda::kDecodedScale;
    float values[4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float4& sum = sums[i];
      values[2 * i] = cuda::portable_activate(p.args.activation, sum.x * gate, sum.z * up);
      values[2 * i + 1] = cuda::portable_activate(p.args.activation, sum.y * gate, sum.w * up);
    }
    store_quad(h + first_row / 2, present, grid_of_quad(values, scale));
  } else {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float values[4] = {cuda::relu2(sums[i].x * up), cuda::relu2(sums[i].y * up),
                               cuda::relu2(sums[i].z * up), cuda::relu2(sums[i].w * up)};
      store_quad(h + first_row + 16 * i, present, grid_of_quad(values, scale));
    }
  }
}

template <DecodeTokens kTokens>
__device__ __forceinline__ void store_row(
    const Params& p, std::int64_t route, int expert, int first_row, float4 sum) {
  const int col = first_row + 2 * (static_cast<int>(threadIdx.x) % 4);
  const std::int64_t offset = route * p.hidden_size + col;
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    if (first_row + 8 * part >= p.hidden_size) break;
    const float2 factor =
        row_factors<kTokens>(p.gemm[1], p.args.alpha_down, expert, col + 8 * part);
    const float a = (part == 0 ? sum.x : sum.z) * factor.x;
    const float b = (part == 0 ? sum.y : sum.w) * factor.y;
    if (p.rows_f32) {
      *reinterpret_cast<float2*>(static_cast<float*>(p.args.rows) + offset + 8 * part) = {a, b};
    } else {
      store_pair(static_cast<__nv_bfloat16*>(p.args.rows) + offset + 8 * part, a, b);
    }
  }
}

}  // namespace halfbyte::sm90::moe_decode

#endif  // HALFBYTE_KERNELS_CUDA_SM90_MOE_DECODE_NVFP4_STORE_CUH_

// SPDX-License-Identifier: Apache-2.0
//
// What the sums of a tile of moe_decode_bf16_nvfp4 become: h, or rows.
#ifndef HALFBYTE_KERNELS_CUDA_SM90_MOE_DECODE_BF16_NVFP4_STORE_CUH_
#define HALFBYTE_KERNELS_CUDA_SM90_MOE_DECODE_BF16_NVFP4_STORE_CUH_

#include <cuda_bf16.h>

#include "kernels/cuda/common/activation.cuh"
#include "kernels/cuda/common/nvfp4_decode.cuh"
#include "kernels/cuda/common/portable_activation.h"
#include "kernels/cuda/sm90/moe_decode_bf16_nvfp4.h"

namespace halfbyte::sm90::moe_decode {

inline constexpr int kNumThreads = 320;
inline constexpr int kNumConsumers = 8;
inline constexpr int kProducerWarp = 8;
inline constexpr int kGatherWarp = 9;
inline constexpr int kQueueDepth = 4;
inline constexpr int kEnd = -1;

struct Gemm {
  const std::uint8_t* weights;
  std::int64_t bytes_per_expert;
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
  int h_arrivals;  // of one token tile of an expert, when its h is complete
};

/// A tile of the queue: GEMM (or kEnd), expert, row tile, token tile.
struct Work {
  int gemm, expert, row_tile, token_tile;
};

__device__ __forceinline__ void store_pair(__nv_bfloat16* dst, float a, float b) {
  *reinterpret_cast<__nv_bfloat162*>(dst) = __floats2bfloat162_rn(a, b);
}

/// Activation of one fragment, for one token of this lane.
__device__ __forceinline__ void store_h(
    const Params& p, std::int64_t route, int expert, int first_row, float4 sum) {
  const int q = static_cast<int>(threadIdx.x) % 4;
  auto* h = static_cast<__nv_bfloat16*>(p.args.h) + route * p.h_cols;
  const float up = p.args.alpha_up[expert] * cuda::kDecodedScale;
  const cuda::GatedActivation& spec = p.activation;
  if (p.gated) {
    const float gate = p.args.alpha_gate[expert] * cuda::kDecodedScale;
    store_pair(h + first_row / 2 + 2 * q, cuda::activate(spec, sum.x * gate, sum.z * up),
               cuda::activate(spec, sum.y * gate, sum.w * up));
  } else {
    store_pair(h + first_row + 2 * q, cuda::relu2(sum.x * up), cuda::relu2(sum.y * up));
    store_pair(h + first_row + 8 + 2 * q, cuda::relu2(sum.z * up), cuda::relu2(sum.w * up));
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

__device__ __forceinline__ void store_row(
    const Params& p, std::int64_t route, int expert, int first_row, float4 sum) {
  const float alpha = p.args.alpha_down[expert] * cuda::kDecodedScale;
  const int col = first_row + 2 * (static_cast<int>(threadIdx.x) % 4);
  const std::int64_t offset = route * p.hidden_size + col;
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    if (first_row + 8 * part >= p.hidden_size) break;
    const float a = (part == 0 ? sum.x : sum.z) * alpha;
    const float b = (part == 0 ? sum.y : sum.w) * alpha;
    if (p.rows_f32) {
      *reinterpret_cast<float2*>(static_cast<float*>(p.args.rows) + offset + 8 * part) = {a, b};
    } else {
      store_pair(static_cast<__nv_bfloat16*>(p.args.rows) + offset + 8 * part, a, b);
    }
  }
}

}  // namespace halfbyte::sm90::moe_decode

#endif  // HALFBYTE_KERNELS_CUDA_SM90_MOE_DECODE_BF16_NVFP4_STORE_CUH_

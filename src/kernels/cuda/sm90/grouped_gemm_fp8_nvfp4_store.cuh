// SPDX-License-Identifier: Apache-2.0
//
// What a finished tile of grouped_gemm_fp8_nvfp4 becomes: h in fp32, or rows. A warp holds 16
// weight rows x kWidth tokens; a lane rows lane / 4 and lane / 4 + 8.
#ifndef HALFBYTE_KERNELS_CUDA_SM90_GROUPED_GEMM_FP8_NVFP4_STORE_CUH_
#define HALFBYTE_KERNELS_CUDA_SM90_GROUPED_GEMM_FP8_NVFP4_STORE_CUH_

#include <cuda_bf16.h>

#include "kernels/cuda/common/activation.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/ptx/mma.cuh"
#include "kernels/cuda/sm90/grouped_gemm_fp8_nvfp4.h"
#include "kernels/cuda/sm90/tile_queue.cuh"

namespace halfbyte::sm90::grouped_gemm_fp8 {

struct Params {
  GroupedGemmFp8Args args;
  std::int64_t bytes_per_expert;
  int num_experts;
  int row_tiles;   // of 128 rows
  int col_blocks;  // of 128 columns
  int output_cols;
  cuda::GatedActivation activation;
  bool gated;
  bool rows_f32;
};

/// Tokens that the epilogue works on at a time: a part of the width, so that its code stays small.
inline constexpr int kGroupTokens = 16;

template <int kWidth>
struct Store {
  static constexpr int kTokens = kGroupTokens;
  using Sums = float[kWidth / 2];

  /// What a warp stores: 16 weight rows of tokens from `first` on. The lane's factors of its two
  /// rows are their alphas over the powers of two that the rows were multiplied with.
  struct Group {
    const Tile& tile;
    int row_tile, first;
    std::uint32_t staging;
    float factor[2];

    __device__ __forceinline__ bool holds(int token) const {
      return first + token < tile.num_tokens;
    }
    __device__ __forceinline__ std::int64_t row(int token) const {
      return tile.first_route + first + token;
    }
  };

  template <bool kSwiglu>
  static __device__ __forceinline__ void store_gated(const Params& p,
                                                     const Group& g,
                                                     const Sums& sums) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int feature = g.row_tile * 8 + lane / 4;
    auto* h = static_cast<float*>(p.args.output);
#pragma unroll
    for (int i = 0; i < kTokens / 4; ++i) {
      const int token = i / 2 * 8 + lane % 4 * 2 + i % 2;
      const float gate = sums[i / 2 * 4 + i % 2] * g.factor[0];
      const float up = sums[i / 2 * 4 + 2 + i % 2] * g.factor[1];
      const float value = kSwiglu ? cuda::swiglu(gate, up) : cuda::activate(p.activation, gate, up);
      if (g.holds(token) && feature < p.output_cols)
        h[g.row(token) * p.output_cols + feature] = value;
    }
  }

  /// fp32 values, each `of(sum)`: rows, or h without a gate.
  template <typename Of>
  static __device__ __forceinline__ void store_f32(const Params& p,
                                                   const Group& g,
                                                   const Sums& sums,
                                                   Of of) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    auto* output = static_cast<float*>(p.args.output);
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) {
      const int token = i / 4 * 8 + lane % 4 * 2 + i % 2;
      const int part = i % 4 / 2;
      const int col = g.row_tile * 16 + part * 8 + lane / 4;
      if (g.holds(token) && col < p.output_cols)
        output[g.row(token) * p.output_cols + col] = of(sums[i] * g.factor[part]);
    }
  }

  /// Through shared memory, so that the stores are 32 contiguous bytes of a token.
  static __device__ __forceinline__ void store_bf16(const Params& p,
                                                    const Group& g,
                                                    const Sums& sums) {
    static_assert(kTokens == 16);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto chunk_of = [&](int token, int chunk) {
      return g.staging + token * 32 + ((chunk ^ (token / 4 % 2)) << 4);
    };
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* v = sums + 4 * (i / 2) + i % 2 * 2;
      words[i] = ptx::bf16_pair(v[0] * g.factor[i % 2], v[1] * g.factor[i % 2]);
    }
    ptx::store_transposed_8x8x4(chunk_of(lane / 16 * 8 + lane % 8, lane / 8 % 2), words);
    __syncwarp();
    const int token = lane / 2;
    const uint4 part = ptx::load_shared_16(chunk_of(token, lane % 2));
    const int col = g.row_tile * 16 + lane % 2 * 8;
    auto* output = static_cast<__nv_bfloat16*>(p.args.output);
    if (g.holds(token) && col < p.output_cols)
      *reinterpret_cast<uint4*>(output + g.row(token) * p.output_cols + col) = part;
    __syncwarp();
  }

  template <GemmOutput kOutput>
  static __device__ __forceinline__ void store_group(const Params& p,
                                                     const Group& g,
                                                     const Sums& sums) {
    if constexpr (kOutput == GemmOutput::kRows) {
      if (p.rows_f32)
        store_f32(p, g, sums, [](float sum) { return sum; });
      else
        store_bf16(p, g, sums);
    } else {
      if (!p.gated)
        store_f32(p, g, sums, cuda::relu2);
      else if (p.activation.swiglu)
        store_gated<true>(p, g, sums);
      else
        store_gated<false>(p, g, sums);
    }
  }

  /// The group that was second becomes the first.
  static __device__ __forceinline__ void shift(Sums& sums) {
#pragma unroll
    for (int i = 0; i < (kWidth - kTokens) / 2; ++i)
      sums[i] = sums[i + kTokens / 2];
  }

  /// The lane's row factors, this one and the one eight on, of the warp's row tile.
  static __device__ __forceinline__ const float* row_factors(const Params& p,
                                                             int expert,
                                                             int row_tile) {
    const std::int64_t rows = std::int64_t{p.row_tiles} * 128;
    return p.args.row_factor + expert * rows + row_tile * 16 + threadIdx.x % 32 / 4;
  }

  template <GemmOutput kOutput>
  static __device__ __forceinline__ void run(
      const Params& p, const Tile& tile, int row_tile, std::uint32_t staging, Sums& sums) {
    const bool two = kOutput == GemmOutput::kActivated && p.gated;
    const float* const factors = row_factors(p, tile.expert, row_tile);
    Group group = {tile,
                   row_tile,
                   0,
                   staging,
                   {p.args.alpha[0][tile.expert] * factors[0],
                    p.args.alpha[two ? 1 : 0][tile.expert] * factors[8]}};
#pragma unroll 1
    for (; group.first < tile.num_tokens; group.first += kTokens) {
      store_group<kOutput>(p, group, sums);
      shift(sums);
    }
  }
};

}  // namespace halfbyte::sm90::grouped_gemm_fp8

#endif  // HALFBYTE_KERNELS_CUDA_SM90_GROUPED_GEMM_FP8_NVFP4_STORE_CUH_

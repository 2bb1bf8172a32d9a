// SPDX-License-Identifier: Apache-2.0
//
// What a finished tile of grouped_gemm_bf16_nvfp4 becomes: h as the next product's token tiles, or
// rows. A warp holds 16 or 32 weight rows (kTiles x 16) x kWidth tokens.
#ifndef HALFBYTE_KERNELS_CUDA_SM90_GROUPED_GEMM_BF16_NVFP4_STORE_CUH_
#define HALFBYTE_KERNELS_CUDA_SM90_GROUPED_GEMM_BF16_NVFP4_STORE_CUH_

#include <cuda_bf16.h>

#include "kernels/cuda/common/activation.cuh"
#include "kernels/cuda/common/nvfp4_decode.cuh"
#include "kernels/cuda/common/portable_activation.h"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/ptx/mma.cuh"
#include "kernels/cuda/sm90/grouped_gemm_bf16_nvfp4.h"
#include "kernels/cuda/sm90/tile_queue.cuh"

namespace halfbyte::sm90::grouped_gemm {

inline constexpr int kTileRowCells = 8;  // 256 rows
/// The consumer warpgroups, and one to copy that hands its registers on.
__host__ __device__ constexpr int num_threads(int tile_tokens) {
  return 32 * gemm_num_consumer_warps(tile_tokens) + 128;
}

struct Params {
  GroupedGemmArgs args;
  std::int64_t bytes_per_expert;
  int num_experts;
  int row_tiles;
  int row_cells;
  int col_cells;
  int output_cols;
  cuda::GatedActivation activation;
  bool gated;
  bool rows_f32;
};

/// Widths of the products of a tile size (TokenTiles::width), descending.
template <int kTileTokens>
struct Widths;
template <>
struct Widths<64> {
  using List = WidthList<64, 48, 32>;
};
template <>
struct Widths<96> {
  using List = WidthList<96, 80, 64, 48>;
};
template <>
struct Widths<160> {
  using List = WidthList<160, 144, 128, 112, 96, 80>;
};

/// Tokens that the epilogue works on at a time: a part of the width. Unrolled over all of them its
/// code would not be in the instruction cache when a CTA comes to a width; quantising is more code,
/// and alphas of rows are more registers.
constexpr int group_tokens(int width, int tiles, GemmOutput output) {
  if (tiles == 1 || output == GemmOutput::kScaledRows) return 16;
  for (const int tokens : {32, 24, 40, 56}) {
    if (output == GemmOutput::kQuantized && tokens > 32) return 16;
    if (width % tokens == 0) return tokens;
  }
  return width;
}

/// Sums, decoded and not yet scaled, times this are what they stand for. No alphas: 1.
__device__ __forceinline__ float alpha_of(const float* alphas, int expert) {
  return (alphas == nullptr ? 1.0F : alphas[expert]) * cuda::kDecodedScale;
}

template <int kTileTokens, int kWidth, GemmOutput kOutput>
struct Store {
  static constexpr int kTiles = gemm_tiles_per_warpgroup(kTileTokens);
  static constexpr int kTokens = group_tokens(kWidth, kTiles, kOutput);
  using Accumulators = float[kTiles][kWidth / 2];

  /// What a warp stores: rows from 16 * row_tile on of tokens from `first` on, scaled.
  struct Group {
    const Tile& tile;
    int row_tile, first;
    std::uint32_t staging;
    float alpha[2];
    cuda::QuantizeScale h_scale;  // kQuantized

    __device__ __forceinline__ bool holds(int token) const {
      return first + token < tile.num_tokens;
    }
  };

  /// Two tokens of one feature in, two features of token lane / 4 out.
  static __device__ __forceinline__ std::uint32_t transposed_pair(float a, float b) {
    return ptx::transpose_8x8(ptx::bf16_pair(a, b));
  }

  /// A lane's places in the next product's token tile, for a warp's groups of eight features from a
  /// multiple of 16 on: of token lane / 4, two features of each group. Eight features on, the
  /// swizzled chunk differs in one bit; 16 on, they are the next four bytes (token_position).
  struct Features {
    std::uint8_t* even;
    int odd;
    __device__ __forceinline__ std::uint8_t* at(int group, int block) const {
      return even + (group % 2 == 0 ? 0 : odd) + group / 2 * 4 + block * 1024;
    }
  };
  static __device__ __forceinline__ Features features(const Params& p, const Group& g, int first) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int position = token_position(first % 64 + lane % 4 * 2);
    const std::int64_t row =
        (std::int64_t{g.tile.image} * (p.output_cols / 64) + first / 64) * kTileTokens + g.first +
        lane / 4;
    const int chunk = (position / 8 ^ (lane / 4)) << 4;
    return {static_cast<std::uint8_t*>(p.args.output) + row * 128 + chunk + position % 8 * 2,
            (chunk & 64) != 0 ? -64 : 64};
  }

  static __device__ __forceinline__ void store_word(std::uint8_t* dst, std::uint32_t v) {
    *reinterpret_cast<std::uint32_t*>(dst) = v;
  }

  template <bool kSwiglu>
  static __device__ __forceinline__ float activate(const Params& p, float gate, float up) {
    if constexpr (kOutput == GemmOutput::kQuantized) {
      return kSwiglu ? cuda::portable_swiglu(gate, up)
                     : cuda::portable_activate(p.args.activation, gate, up);
    } else {
      return kSwiglu ? cuda::swiglu(gate, up) : cuda::activate(p.activation, gate, up);
    }
  }

  /// h of a gated expert: 8 features a tile.
  template <bool kSwiglu>
  static __device__ __forceinline__ void store_gated(const Params& p,
                                                     const Group& g,
                                                     const Accumulators& acc) {
    const int token = static_cast<int>(threadIdx.x) % 32 / 4;
    // A warp with one tile may start at an odd group of eight.
    const Features dst = features(p, g, g.row_tile / 2 * 16);
    const int first = kTiles == 1 ? g.row_tile % 2 : 0;
#pragma unroll
    for (int block = 0; block < kTokens / 8; ++block) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        const float* v = acc[t] + 4 * block;
        const std::uint32_t word =
            transposed_pair(activate<kSwiglu>(p, v[0] * g.alpha[0], v[2] * g.alpha[1]),
                            activate<kSwiglu>(p, v[1] * g.alpha[0], v[3] * g.alpha[1]));
        store_word(dst.at(first + t, block), g.holds(block * 8 + token) ? word : 0);
      }
    }
  }

  /// The same without a gate: 16 features a tile.
  static __device__ __forceinline__ void store_relu2(const Params& p,
                                                     const Group& g,
                                                     const Accumulators& acc) {
    const int token = static_cast<int>(threadIdx.x) % 32 / 4;
    if (g.row_tile * 16 >= p.output_cols) return;
    const Features dst = features(p, g, g.row_tile * 16);
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
#pragma unroll
      for (int block = 0; block < kTokens / 8; ++block) {
        const float* v = acc[i / 2] + 4 * block + i % 2 * 2;
        const std::uint32_t word =
            transposed_pair(cuda::relu2(v[0] * g.alpha[0]), cuda::relu2(v[1] * g.alpha[0]));
        store_word(dst.at(i, block), g.holds(block * 8 + token) ? word : 0);
      }
    }
  }

  /// Of kFeatures of a lane's features, one of each eight, for every token of the group that it
  /// has: two of each block of eight.
  template <int kFeatures>
  using Values = float[kTokens / 8][kFeatures][2];

  /// A scale for each token, which one lane of the eight that have it works out.
  struct GridScales {
    static constexpr int kCount = kTokens > 16 ? 8 : 4;  // of four lanes' tokens, two a block
    static_assert(kCount >= kTokens / 4);
    cuda::BlockScale mine;  // of the token of index lane / 4 % kCount

    __device__ __forceinline__ cuda::BlockScale of(int block, int i) const {
      const int from = (2 * block + i) * 4 + static_cast<int>(threadIdx.x) % 4;
      return {__shfl_sync(~0U, mine.byte, from), __shfl_sync(~0U, mine.q, from)};
    }
  };

  /// The largest magnitude of `h` over the lanes that have a token: each step halves the tokens of
  /// which a lane knows more than the one it ends with.
  template <int kFeatures>
  static __device__ __forceinline__ std::uint32_t token_amax(const Values<kFeatures>& h) {
    constexpr int kCount = GridScales::kCount;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    std::uint32_t amax[kCount] = {};
#pragma unroll
    for (int i = 0; i < kTokens / 4; ++i) {
#pragma unroll
      for (int f = 0; f < kFeatures; ++f)
        amax[i] = cuda::larger(amax[i], cuda::magnitude_bits(h[i / 2][f][i % 2]));
    }
#pragma unroll
    for (int half = kCount / 2; half > 0; half /= 2) {
      const bool upper = (lane & 4 * half) != 0;
#pragma unroll
      for (int i = 0; i < half; ++i) {
        const std::uint32_t given = upper ? amax[i] : amax[i + half];
        const std::uint32_t kept = upper ? amax[i + half] : amax[i];
        amax[i] = cuda::larger(kept, __shfl_xor_sync(~0U, given, 4 * half));
      }
    }
    for (int lanes = 4 * kCount; lanes < 32; lanes *= 2)
      amax[0] = cuda::larger(amax[0], __shfl_xor_sync(~0U, amax[0], lanes));
    return amax[0];
  }

  /// The larger of this lane's value and that of the same lane of the warp that has the other eight
  /// features of a block: warps 2n and 2n + 1.
  static __device__ __forceinline__ std::uint32_t larger_of_pair(const Group& g,
                                                                 std::uint32_t value) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const std::uint32_t mine = g.staging + threadIdx.x % 32 * 4;
    ptx::store_shared_4(mine, value);
    ptx::named_barrier(1 + warp / 2, 64);
    const std::uint32_t other =
        ptx::load_shared_4(warp % 2 == 0 ? mine + kGemmWarpStaging : mine - kGemmWarpStaging);
    ptx::named_barrier(1 + warp / 2, 64);
    return cuda::larger(value, other);
  }

  /// `h` on the NVFP4 grid, to the groups of eight features of `dst` from `first` on. With one of
  /// them the other of the block is the neighbouring warp's.
  template <int kFeatures>
  static __device__ __forceinline__ void store_grid(const Group& g,
                                                    const Features& dst,
                                                    int first,
                                                    const Values<kFeatures>& h) {
    std::uint32_t amax = token_amax<kFeatures>(h);
    if constexpr (kFeatures == 1) amax = larger_of_pair(g, amax);
    const GridScales scales = {cuda::make_block_scale(amax, g.h_scale)};
    const int token = static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int block = 0; block < kTokens / 8; ++block) {
      const cuda::BlockScale scale[2] = {scales.of(block, 0), scales.of(block, 1)};
#pragma unroll
      for (int f = 0; f < kFeatures; ++f) {
        const std::uint32_t word =
            ptx::transpose_8x8(cuda::grid_pair(cuda::grid_value(h[block][f][0], scale[0]),
                                               cuda::grid_value(h[block][f][1], scale[1])));
        store_word(dst.at(first + f, block), g.holds(block * 8 + token) ? word : 0);
      }
    }
  }

  /// h of a gated expert on the NVFP4 grid: 8 features a tile.
  template <bool kSwiglu>
  static __device__ __forceinline__ void store_gated_grid(const Params& p,
                                                          const Group& g,
                                                          const Accumulators& acc) {
    Values<kTiles> h;
#pragma unroll
    for (int block = 0; block < kTokens / 8; ++block) {
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i) {
        const float* v = acc[i / 2] + 4 * block + i % 2;
        h[block][i / 2][i % 2] = activate<kSwiglu>(p, v[0] * g.alpha[0], v[2] * g.alpha[1]);
      }
    }
    // A warp with one tile may start at an odd group of eight.
    store_grid<kTiles>(g, features(p, g, g.row_tile / 2 * 16), kTiles == 1 ? g.row_tile % 2 : 0, h);
  }

  /// The same without a gate: 16 features a tile.
  static __device__ __forceinline__ void store_relu2_grid(const Params& p,
                                                          const Group& g,
                                                          const Accumulators& acc) {
    if (g.row_tile * 16 >= p.output_cols) return;
    const Features dst = features(p, g, g.row_tile * 16);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      Values<2> h;
#pragma unroll
      for (int i = 0; i < kTokens / 2; ++i)
        h[i / 4][i % 4 / 2][i % 2] = cuda::relu2(acc[t][i] * g.alpha[0]);
      store_grid<2>(g, dst, 2 * t, h);
    }
  }

  /// What the sums of tokens 8 * block + 2 * (lane % 4) and the next are times.
  static __device__ __forceinline__ float2 row_alphas(const Params& p, const Group& g, int block) {
    if constexpr (kOutput == GemmOutput::kScaledRows) {
      const int token = block * 8 + static_cast<int>(threadIdx.x) % 4 * 2;
      const float* alpha = p.args.row_alpha + g.tile.first_route + g.first + token;
      return {g.holds(token) ? alpha[0] * cuda::kDecodedScale : 0.0F,
              g.holds(token + 1) ? alpha[1] * cuda::kDecodedScale : 0.0F};
    } else {
      return {g.alpha[0], g.alpha[0]};
    }
  }

  /// Through shared memory, 8 tokens x 32 rows or 16 x 16 at a time, so that the stores are 64 or
  /// 32 contiguous bytes of a token. Two buffers: what is loaded was stored before this round's
  /// barrier, what is overwritten was loaded before it.
  static __device__ __forceinline__ void store_bf16(const Params& p,
                                                    const Group& g,
                                                    const Accumulators& acc) {
    constexpr int kChunks = 2 * kTiles;  // of 16 bytes, of a token
    constexpr int kBlocks = 2 / kTiles;  // of 8 tokens, a round
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto chunk_of = [&](int token, int chunk) {
      return g.staging + token * kChunks * 16 + ((chunk ^ (token * kChunks / 8 % kChunks)) << 4);
    };
    const std::uint32_t to = chunk_of(lane / (8 * kChunks) * 8 + lane % 8, lane / 8 % kChunks);
    const int token = lane / kChunks;
    const std::uint32_t from = chunk_of(token, lane % kChunks);
    const int col = g.row_tile * 16 + lane % kChunks * 8;
    const std::int64_t row = std::int64_t{g.tile.first_route + g.first + token} * p.output_cols;
    __nv_bfloat16* dst = static_cast<__nv_bfloat16*>(p.args.output) + row + col;
#pragma unroll
    for (int round = 0; round < kTokens / (8 * kBlocks); ++round) {
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int tokens = round * kBlocks + i / kChunks;
        const float* v = acc[i % kChunks / 2] + 4 * tokens + i % 2 * 2;
        const float2 alpha = row_alphas(p, g, tokens);
        words[i] = ptx::bf16_pair(v[0] * alpha.x, v[1] * alpha.y);
      }
      ptx::store_transposed_8x8x4(to + round % 2 * 512, words);
      __syncwarp();
      const uint4 row_part = ptx::load_shared_16(from + round % 2 * 512);
      const int block = round * kBlocks * 8;
      if (g.holds(block + token) && col < p.output_cols)
        *reinterpret_cast<uint4*>(dst + std::int64_t{block} * p.output_cols) = row_part;
    }
    __syncwarp();
  }

  static __device__ __forceinline__ void store_f32(const Params& p,
                                                   const Group& g,
                                                   const Accumulators& acc) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    auto* output = static_cast<float*>(p.args.output);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int i = 0; i < kTokens / 2; ++i) {
        const int token = i / 4 * 8 + lane % 4 * 2 + i % 2;
        const int col = (g.row_tile + t) * 16 + i % 4 / 2 * 8;
        const std::int64_t row = g.tile.first_route + g.first + token;
        const float2 alpha = row_alphas(p, g, i / 4);
        if (g.holds(token) && col < p.output_cols)
          output[row * p.output_cols + col + lane / 4] =
              acc[t][i] * (i % 2 == 0 ? alpha.x : alpha.y);
      }
    }
  }

  static __device__ __forceinline__ void store_group(const Params& p,
                                                     const Group& g,
                                                     const Accumulators& acc) {
    if constexpr (!writes_tiles(kOutput)) {
      if (p.rows_f32)
        store_f32(p, g, acc);
      else
        store_bf16(p, g, acc);
    } else if constexpr (kOutput == GemmOutput::kQuantized) {
      if (!p.gated)
        store_relu2_grid(p, g, acc);
      else if (p.activation.swiglu)
        store_gated_grid<true>(p, g, acc);
      else
        store_gated_grid<false>(p, g, acc);
    } else {
      if (!p.gated)
        store_relu2(p, g, acc);
      else if (p.activation.swiglu)
        store_gated<true>(p, g, acc);
      else
        store_gated<false>(p, g, acc);
    }
  }

  /// The group that was second becomes the first.
  static __device__ __forceinline__ void shift(Accumulators& acc) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int i = 0; i < (kWidth - kTokens) / 2; ++i)
        acc[t][i] = acc[t][i + kTokens / 2];
    }
  }

  static __device__ __forceinline__ void run(
      const Params& p, const Tile& tile, int row_tile, std::uint32_t staging, Accumulators& acc) {
    const bool two = writes_tiles(kOutput) && p.gated;
    Group group = {tile,
                   row_tile,
                   0,
                   staging,
                   {alpha_of(p.args.alpha[0], tile.expert),
                    two ? alpha_of(p.args.alpha[1], tile.expert) : 0.0F},
                   {}};
    if constexpr (kOutput == GemmOutput::kQuantized) group.h_scale = *p.args.h_scale;
    // The next product wants zeros past the last token.
    const int end = writes_tiles(kOutput) ? kWidth : tile.num_tokens;
#pragma unroll 1
    for (; group.first < end; group.first += kTokens) {
      store_group(p, group, acc);
      shift(acc);
    }
  }
};

}  // namespace halfbyte::sm90::grouped_gemm

#endif  // HALFBYTE_KERNELS_CUDA_SM90_GROUPED_GEMM_BF16_NVFP4_STORE_CUH_

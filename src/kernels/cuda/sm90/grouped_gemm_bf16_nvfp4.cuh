// SPDX-License-Identifier: Apache-2.0
//
// A persistent CTA multiplies tiles of 256 weight rows x kTokens tokens. Two consumer warpgroups
// own 128 rows each, as two m64 tiles: while the four products of one run, the next 64 columns of
// the other are decoded in registers, so a product is always in flight. A third warpgroup's first
// warp copies weights and token tiles, both in the form that shared memory wants.
#ifndef HALFBYTE_KERNELS_CUDA_SM90_GROUPED_GEMM_BF16_NVFP4_CUH_
#define HALFBYTE_KERNELS_CUDA_SM90_GROUPED_GEMM_BF16_NVFP4_CUH_

#include <cuda_bf16.h>

#include "kernels/cuda/common/activation.cuh"
#include "kernels/cuda/common/expert_tiles.cuh"
#include "kernels/cuda/common/nvfp4_decode.cuh"
#include "kernels/cuda/ptx/mbarrier.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/ptx/wgmma.cuh"
#include "kernels/cuda/sm90/grouped_gemm_bf16_nvfp4.h"

namespace halfbyte::sm90::grouped_gemm {

inline constexpr int kNumThreads = 384;
inline constexpr int kNumConsumerWarps = 8;
inline constexpr int kTileRowCells = 8;  // 256 rows
inline constexpr int kStageCells = kGemmStageCells;

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

template <int kTokens>
struct Kernel {
  static constexpr int kNumStages = gemm_num_stages(kTokens);
  static constexpr int kWeightBytes = gemm_weight_stage_bytes();
  static constexpr int kTokenBytes = gemm_token_stage_bytes(kTokens);
  using Accumulators = float[2][kTokens / 2];

  /// Addresses in shared memory; `tokens` is aligned to 1024 for the swizzle.
  struct SharedStorage {
    std::uint32_t tokens, weights, staging, full, empty;
    cuda::ExpertTiles tiles;
  };

  struct Ring {
    int slot = 0;
    std::uint32_t parity = 0;
    __device__ __forceinline__ void advance() {
      if (++slot == kNumStages) {
        slot = 0;
        parity ^= 1;
      }
    }
  };

  struct Tile {
    int expert, row_cell, token_tile, first_route, num_tokens;
  };

  static __device__ __forceinline__ SharedStorage shared_storage(const Params& p) {
    extern __shared__ std::uint8_t shared[];
    const std::uint32_t begin = ptx::shared_address(shared);
    const std::uint32_t aligned = (begin + 1023) / 1024 * 1024;
    SharedStorage s;
    s.tokens = aligned;
    s.weights = s.tokens + kNumStages * kTokenBytes;
    s.staging = s.weights + kNumStages * kWeightBytes;
    s.full = s.staging + kGemmStagingBytes;
    s.empty = s.full + 8 * kNumStages;
    const std::uint32_t tables = s.empty + 8 * kNumStages - begin;
    auto* words = reinterpret_cast<std::int32_t*>(shared + tables);
    s.tiles = cuda::place_expert_tiles(words, p.num_experts);
    return s;
  }

  static __device__ __forceinline__ void init_barriers(const SharedStorage& s) {
    for (int i = 0; i < kNumStages; ++i) {
      ptx::init_barrier(s.full + 8 * i, 1);
      ptx::init_barrier(s.empty + 8 * i, kNumConsumerWarps);
    }
    ptx::fence_barrier_init();
  }

  static __device__ __forceinline__ int num_tiles(const Params& p, const SharedStorage& s) {
    return s.tiles.tile_start[p.num_experts] * p.row_tiles;
  }

  static __device__ __forceinline__ Tile find(const Params& p, const SharedStorage& s, int index) {
    const cuda::TileIndex t = cuda::find_tile(s.tiles, p.num_experts, p.row_tiles, index);
    return {t.expert, t.row_tile * kTileRowCells, s.tiles.tile_start[t.expert] + t.token_tile,
            s.tiles.offset[t.expert] + t.token_tile * kTokens,
            min(kTokens, s.tiles.count[t.expert] - t.token_tile * kTokens)};
  }

  /// Lane r of one warp copies row cell r of the weights, lane 8 + h the h-th 64 columns of the
  /// tokens, of which only whole groups of eight that hold any.
  static __device__ void copy_operands(const Params& p, const SharedStorage& s) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::int64_t row_cell_bytes = std::int64_t{p.col_cells} * kCellBytes;
    const auto* tokens = static_cast<const std::uint8_t*>(p.args.tokens);
    Ring ring;
    for (int i = static_cast<int>(blockIdx.x); i < num_tiles(p, s);
         i += static_cast<int>(gridDim.x)) {
      const Tile tile = find(p, s, i);
      const int row_cells = min(kTileRowCells, p.row_cells - tile.row_cell);
      const std::uint8_t* weights = p.args.weights + tile.expert * p.bytes_per_expert +
                                    (tile.row_cell + lane) * row_cell_bytes;
      const std::uint8_t* image =
          tokens + (std::int64_t{tile.token_tile} * p.col_cells + lane - 8) * kTokens * 128;
      const auto token_bytes = static_cast<std::uint32_t>((tile.num_tokens + 7) / 8 * 1024);
      for (int cell = 0; cell < p.col_cells; cell += kStageCells) {
        const int cells = min(kStageCells, p.col_cells - cell);
        const auto bytes = static_cast<std::uint32_t>(cells * kCellBytes);
        const std::uint32_t barrier = s.full + 8 * ring.slot;
        ptx::wait(s.empty + 8 * ring.slot, ring.parity ^ 1);
        if (lane == 0) ptx::arrive_expect(barrier, row_cells * bytes + cells * token_bytes);
        __syncwarp();
        if (lane < row_cells) {
          ptx::bulk_copy(s.weights + ring.slot * kWeightBytes + lane * kStageCells * kCellBytes,
                         weights + cell * kCellBytes, bytes, barrier);
        } else if (lane >= 8 && lane < 8 + cells) {
          ptx::bulk_copy(s.tokens + ring.slot * kTokenBytes + (lane - 8) * kTokens * 128,
                         image + std::int64_t{cell} * kTokens * 128, token_bytes, barrier);
        }
        ring.advance();
      }
    }
  }

  /// This warp's 32 x 64 weights of a step.
  struct Words {
    uint4 tile[2];
    std::uint32_t scales;
  };
  static __device__ __forceinline__ void load_words(std::uint32_t codes,
                                                    std::uint32_t scales,
                                                    std::uint32_t offset,
                                                    Words& words) {
    words.tile[0] = ptx::load_shared_16(codes + offset);
    words.tile[1] = ptx::load_shared_16(codes + offset + 512);
    words.scales = ptx::load_shared_4(scales + offset);
  }

  static __device__ __forceinline__ void multiply_step(float (&acc)[kTokens / 2],
                                                       const std::uint32_t* a,
                                                       std::uint64_t tokens) {
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step)
      ptx::wgmma_64xNx16<kTokens>(acc, a + 4 * step, tokens + 2 * step);
    ptx::wgmma_commit();
  }

  /// All columns of a tile. The registers of one m64 tile are decoded while the other's products
  /// run; a stage is released one step late, when the wait has retired its last reader.
  static __device__ __forceinline__ void multiply_tile(const Params& p,
                                                       const SharedStorage& s,
                                                       Ring& ring,
                                                       Accumulators& acc) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::uint32_t codes =
        s.weights + static_cast<std::uint32_t>(threadIdx.x) / 32 * kStageCells * kCellBytes +
        lane * 16;
    const std::uint32_t scales = codes + kCellCodeBytes - lane * 12;
    std::uint32_t a0[16];
    std::uint32_t a1[16];
    Words words;
    int in_stage = 0;
    int finished = -1;
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i)
      acc[0][i] = acc[1][i] = 0.0F;
    ptx::wait(s.full + 8 * ring.slot, ring.parity);
    load_words(codes, scales, ring.slot * kWeightBytes, words);
    cuda::decode_tile(words.tile[0], cuda::scale_pair(words.scales, 0),
                      cuda::scale_pair(words.scales, 1), a0);
#pragma unroll 1
    for (int cell = 0; cell < p.col_cells; ++cell) {
      const std::uint64_t tokens =
          ptx::swizzled_operand(s.tokens + ring.slot * kTokenBytes + in_stage * kTokens * 128);
      multiply_step(acc[0], a0, tokens);
      ptx::wgmma_wait<1>();
      __syncwarp();
      if (finished >= 0 && lane == 0) ptx::arrive(s.empty + 8 * finished);
      finished = -1;
      cuda::decode_tile(words.tile[1], cuda::scale_pair(words.scales, 2),
                        cuda::scale_pair(words.scales, 3), a1);
      multiply_step(acc[1], a1, tokens);
      if (++in_stage == kStageCells || cell + 1 == p.col_cells) {
        finished = ring.slot;
        in_stage = 0;
        ring.advance();
      }
      if (cell + 1 < p.col_cells) {
        if (in_stage == 0) ptx::wait(s.full + 8 * ring.slot, ring.parity);
        load_words(codes, scales, ring.slot * kWeightBytes + in_stage * kCellBytes, words);
      }
      ptx::wgmma_wait<1>();
      cuda::decode_tile(words.tile[0], cuda::scale_pair(words.scales, 0),
                        cuda::scale_pair(words.scales, 1), a0);
    }
    ptx::wgmma_wait<0>();
    __syncwarp();
    if (lane == 0) ptx::arrive(s.empty + 8 * finished);
  }

  /// Two tokens of one feature in, two features of token lane / 4 out.
  static __device__ __forceinline__ std::uint32_t transposed_pair(float a, float b) {
    return ptx::transpose_8x8(bf16_pair(a, b));
  }

  /// A lane's place in the next product's token tile: where features `first` .. `first` + 7 of
  /// token lane / 4 of block 0 lie, and this lane's pair of them.
  static __device__ __forceinline__ std::uint8_t* feature_address(const Params& p,
                                                                  const Tile& tile,
                                                                  int first) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int position = token_position(first % 64 + lane % 4 * 2);
    const std::int64_t row =
        (std::int64_t{tile.token_tile} * (p.output_cols / 64) + first / 64) * kTokens + lane / 4;
    return static_cast<std::uint8_t*>(p.args.output) + row * 128 +
           ((position / 8 ^ (lane / 4)) << 4) + position % 8 * 2;
  }

  static __device__ __forceinline__ void store_word(std::uint8_t* dst, std::uint32_t v) {
    *reinterpret_cast<std::uint32_t*>(dst) = v;
  }

  /// h of this warp's 32 rows of a gated expert: 16 features.
  static __device__ __forceinline__ void store_gated(const Params& p,
                                                     const Tile& tile,
                                                     int row_cell,
                                                     const Accumulators& acc) {
    const float gate = p.args.alpha[0][tile.expert] * cuda::kDecodedScale;
    const float up = p.args.alpha[1][tile.expert] * cuda::kDecodedScale;
    const int token = static_cast<int>(threadIdx.x) % 32 / 4;
    std::uint8_t* const dst[2] = {feature_address(p, tile, row_cell * 16),
                                  feature_address(p, tile, row_cell * 16 + 8)};
#pragma unroll
    for (int block = 0; block < kTokens / 8; ++block) {
      if (block * 8 >= tile.num_tokens) break;
#pragma unroll
      for (int t = 0; t < 2; ++t) {
        const float* v = acc[t] + 4 * block;
        const std::uint32_t word =
            transposed_pair(cuda::activate(p.activation, v[0] * gate, v[2] * up),
                            cuda::activate(p.activation, v[1] * gate, v[3] * up));
        if (block * 8 + token < tile.num_tokens) store_word(dst[t] + block * 1024, word);
      }
    }
  }

  /// The same without a gate: 32 features.
  static __device__ __forceinline__ void store_relu2(const Params& p,
                                                     const Tile& tile,
                                                     int row_cell,
                                                     const Accumulators& acc) {
    const float up = p.args.alpha[0][tile.expert] * cuda::kDecodedScale;
    const int token = static_cast<int>(threadIdx.x) % 32 / 4;
    if (row_cell * kCellRows >= p.output_cols) return;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint8_t* const dst = feature_address(p, tile, row_cell * kCellRows + i * 8);
#pragma unroll
      for (int block = 0; block < kTokens / 8; ++block) {
        if (block * 8 >= tile.num_tokens) break;
        const float* v = acc[i / 2] + 4 * block + i % 2 * 2;
        const std::uint32_t word = transposed_pair(cuda::relu2(v[0] * up), cuda::relu2(v[1] * up));
        if (block * 8 + token < tile.num_tokens) store_word(dst + block * 1024, word);
      }
    }
  }

  static __device__ __forceinline__ std::uint32_t bf16_pair(float a, float b) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  }

  /// Through 512 bytes of shared memory a warp, 8 tokens x 32 rows at a time, so that the stores
  /// are 64 contiguous bytes of a token.
  static __device__ __forceinline__ void store_bf16(const Params& p,
                                                    const SharedStorage& s,
                                                    const Tile& tile,
                                                    int row_cell,
                                                    const Accumulators& acc,
                                                    float alpha) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::uint32_t staging = s.staging + static_cast<std::uint32_t>(threadIdx.x) / 32 * 512;
    const auto chunk_of = [&](int token, int chunk) {
      return staging + token * 64 + ((chunk ^ (token / 2 % 4)) << 4);
    };
    const std::uint32_t to = chunk_of(lane % 8, lane / 8);
    const std::uint32_t from = chunk_of(lane / 4, lane % 4);
    const std::int64_t row = std::int64_t{tile.first_route + lane / 4} * p.output_cols;
    const int col = row_cell * kCellRows + lane % 4 * 8;
    __nv_bfloat16* dst = static_cast<__nv_bfloat16*>(p.args.output) + row + col;
    const std::int64_t block_stride = std::int64_t{p.output_cols} * 8;
#pragma unroll
    for (int block = 0; block < kTokens / 8; ++block) {
      if (block * 8 >= tile.num_tokens) break;
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* v = acc[i / 2] + 4 * block + i % 2 * 2;
        words[i] = bf16_pair(v[0] * alpha, v[1] * alpha);
      }
      __syncwarp();
      ptx::store_transposed_8x8x4(to, words);
      __syncwarp();
      const uint4 row_part = ptx::load_shared_16(from);
      if (block * 8 + lane / 4 < tile.num_tokens && col < p.output_cols)
        *reinterpret_cast<uint4*>(dst + block * block_stride) = row_part;
    }
  }

  static __device__ __forceinline__ void store_f32(
      const Params& p, const Tile& tile, int first_row, const float* v, int block, float alpha) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    auto* output = static_cast<float*>(p.args.output);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = block * 8 + lane % 4 * 2 + i % 2;
      const int col = first_row + i / 2 * 8;
      if (token < tile.num_tokens && col < p.output_cols)
        output[std::int64_t{tile.first_route + token} * p.output_cols + col + lane / 4] =
            v[i] * alpha;
    }
  }

  static __device__ __forceinline__ void store_rows(const Params& p,
                                                    const SharedStorage& s,
                                                    const Tile& tile,
                                                    int row_cell,
                                                    const Accumulators& acc) {
    const float alpha = p.args.alpha[0][tile.expert] * cuda::kDecodedScale;
    if (!p.rows_f32) {
      store_bf16(p, s, tile, row_cell, acc, alpha);
      return;
    }
#pragma unroll
    for (int block = 0; block < kTokens / 8; ++block) {
      if (block * 8 >= tile.num_tokens) break;
#pragma unroll
      for (int t = 0; t < 2; ++t)
        store_f32(p, tile, row_cell * kCellRows + t * 16, acc[t] + 4 * block, block, alpha);
    }
  }

  template <GemmOutput kOutput>
  static __device__ __forceinline__ void multiply(const Params& p, const SharedStorage& s) {
    Ring ring;
    for (int i = static_cast<int>(blockIdx.x); i < num_tiles(p, s);
         i += static_cast<int>(gridDim.x)) {
      const Tile tile = find(p, s, i);
      Accumulators acc;
      multiply_tile(p, s, ring, acc);
      const int row_cell = tile.row_cell + static_cast<int>(threadIdx.x) / 32;
      if (row_cell >= p.row_cells) continue;
      if constexpr (kOutput == GemmOutput::kRows)
        store_rows(p, s, tile, row_cell, acc);
      else if (p.gated)
        store_gated(p, tile, row_cell, acc);
      else
        store_relu2(p, tile, row_cell, acc);
    }
  }

  template <GemmOutput kOutput>
  static __device__ __forceinline__ void run(const Params& p) {
    const SharedStorage s = shared_storage(p);
    ptx::launch_next_kernel();
    if (threadIdx.x == 0) init_barriers(s);
    ptx::wait_for_previous_kernel();
    cuda::build_expert_tiles<kNumThreads>(s.tiles, p.num_experts, p.args.expert_offset,
                                          p.args.expert_count, kTokens);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (warp >= kNumConsumerWarps) {
      ptx::fewer_registers<24>();
      if (warp == kNumConsumerWarps) copy_operands(p, s);
    } else {
      ptx::more_registers<240>();
      multiply<kOutput>(p, s);
    }
  }
};

template <int kTokens, GemmOutput kOutput>
__global__ void __launch_bounds__(kNumThreads, 1)
    grouped_gemm_kernel(const __grid_constant__ Params p) {
  Kernel<kTokens>::template run<kOutput>(p);
}

using KernelPointer = void (*)(Params);
/// The kernel of a width, or null; one file instantiates each output's kernels.
template <GemmOutput kOutput>
KernelPointer find_kernel(int tile_tokens);
template <>
KernelPointer find_kernel<GemmOutput::kActivated>(int tile_tokens);
template <>
KernelPointer find_kernel<GemmOutput::kRows>(int tile_tokens);

}  // namespace halfbyte::sm90::grouped_gemm

#endif  // HALFBYTE_KERNELS_CUDA_SM90_GROUPED_GEMM_BF16_NVFP4_CUH_

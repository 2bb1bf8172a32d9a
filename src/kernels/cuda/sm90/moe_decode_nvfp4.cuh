// SPDX-License-Identifier: Apache-2.0
//
// CTAs take tiles from a queue on the device: first all of GEMM1, expert by expert, then all of
// GEMM2. Warps 0-7 multiply; warp 8 streams weights with bulk copies; warp 9 gathers tokens (later
// h) with 16-byte copies into the same ring. A tile of GEMM2 waits for its expert's h by a counter
// while its weights already stream. A ticket waits only for smaller ones, so no CTA need be
// resident.
//
// Of kE4m3 the products of 128 columns are multiplied with the tokens' scales of these, and the
// last warp to finish a block of h quantises it for all.
#ifndef HALFBYTE_KERNELS_CUDA_SM90_MOE_DECODE_NVFP4_CUH_
#define HALFBYTE_KERNELS_CUDA_SM90_MOE_DECODE_NVFP4_CUH_

#include "kernels/cuda/common/expert_tiles.cuh"
#include "kernels/cuda/common/fp8_decode.cuh"
#include "kernels/cuda/common/nvfp4_decode.cuh"
#include "kernels/cuda/common/ring_position.cuh"
#include "kernels/cuda/ptx/mbarrier.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/sm90/moe_decode_nvfp4_producers.cuh"
#include "kernels/cuda/sm90/moe_decode_nvfp4_store.cuh"

namespace halfbyte::sm90::moe_decode {

template <typename T>
struct Kernel : T {
  using T::kTile, T::kRowGroups, T::kTokenBlocks, T::kCellsPerWarp, T::kNumStages,
      T::kWarpsPerGroup, T::kStageCells, T::kFragments, T::kPieceBytes, T::kTokenRowBytes,
      T::kWeightBytes, T::kTokenBytes, T::kReduceBytes, T::kTokenForm, T::kE4m3, T::kQuantizedH,
      T::kFinishers, T::kTokens, T::tile_tokens, T::first_route, T::token_tiles;
  using typename T::Ring;
  using Accumulators = float[2][kTokenBlocks][4];

  static __device__ __forceinline__ SharedStorage shared_storage(const Params& p,
                                                                 std::uint64_t* queue_barriers,
                                                                 Work* queue) {
    extern __shared__ __align__(128) std::uint8_t shared[];
    SharedStorage s;
    s.weights = ptx::shared_address(shared);
    s.tokens = s.weights + kNumStages * kWeightBytes;
    std::uint8_t* reduce = shared + kNumStages * (kWeightBytes + kTokenBytes);
    std::uint8_t* zero_row = reduce + kReduceBytes;
    std::uint8_t* barriers = zero_row + kTokenRowBytes;
    s.zero_row = ptx::shared_address(zero_row);
    s.reduce = reinterpret_cast<float*>(reduce);
    s.full = ptx::shared_address(barriers);
    s.empty = s.full + 8 * kNumStages;
    s.tiles = cuda::place_expert_tiles(reinterpret_cast<std::int32_t*>(barriers + 16 * kNumStages),
                                       p.num_experts);
    s.queue_full = ptx::shared_address(queue_barriers);
    s.queue_empty = s.queue_full + 8 * kQueueDepth;
    s.queue = queue;
    return s;
  }

  static __device__ __forceinline__ void init_barriers(const SharedStorage& s) {
    for (int i = 0; i < kNumStages; ++i) {
      ptx::init_barrier(s.full + 8 * i, 33);  // 32 gathering lanes and the producer
      ptx::init_barrier(s.empty + 8 * i, kNumConsumers);
    }
    for (int i = 0; i < kQueueDepth; ++i) {
      ptx::init_barrier(s.queue_full + 8 * i, 1);
      ptx::init_barrier(s.queue_empty + 8 * i, kNumConsumers + 1);
    }
    ptx::fence_barrier_init();
  }
  /// The products of one block's step do not wait for each other's, so the blocks take turns.
  template <int kBlocks>
  static __device__ __forceinline__ void multiply_blocks(const std::uint32_t (&a)[2][16],
                                                         const uint4 (&b)[2 * kTokenBlocks],
                                                         Accumulators& acc) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const uint4 part = b[2 * block + step / 2];
        const std::uint32_t low = step % 2 == 0 ? part.x : part.z;
        const std::uint32_t high = step % 2 == 0 ? part.y : part.w;
        for (int tile = 0; tile < 2; ++tile) {
          if constexpr (kE4m3)
            ptx::mma_16x8x16_f16(acc[tile][block], a[tile] + 4 * step, low, high);
          else
            ptx::mma_16x8x16(acc[tile][block], a[tile] + 4 * step, low, high);
        }
      }
    }
  }

  static __device__ __forceinline__ void decode_cell(const uint4 (&words)[2],
                                                     std::uint32_t scales,
                                                     std::uint32_t (&a)[2][16]) {
    if constexpr (kE4m3) {
      cuda::decode_fp8_tile_to_f16(words[0], scales & 0xFFFFU, a[0]);
      cuda::decode_fp8_tile_to_f16(words[1], scales >> 16, a[1]);
    } else {
      cuda::decode_tile(words[0], cuda::scale_pair(scales, 0), cuda::scale_pair(scales, 1), a[0]);
      cuda::decode_tile(words[1], cuda::scale_pair(scales, 2), cuda::scale_pair(scales, 3), a[1]);
    }
  }

  /// One cell (32 rows x 64 columns) times the tile's tokens.
  static __device__ __forceinline__ void multiply_cell(std::uint32_t codes,
                                                       std::uint32_t scales,
                                                       const std::uint32_t (&tokens)[kTokenBlocks],
                                                       int offset,
                                                       int num_tokens,
                                                       Accumulators& acc) {
    std::uint32_t a[2][16];
    const uint4 words[2] = {ptx::load_shared_16(codes), ptx::load_shared_16(codes + 512)};
    const std::uint32_t scale = ptx::load_shared_4(scales);
    uint4 b[2 * kTokenBlocks];
    b[0] = ptx::load_shared_16(tokens[0] + offset);
    b[1] = ptx::load_shared_16(tokens[0] + offset + 16);
    decode_cell(words, scale, a);
    if (kTokenBlocks > 1 && num_tokens > 8) {
      b[2 * kTokenBlocks - 2] = ptx::load_shared_16(tokens[kTokenBlocks - 1] + offset);
      b[2 * kTokenBlocks - 1] = ptx::load_shared_16(tokens[kTokenBlocks - 1] + offset + 16);
      multiply_blocks<kTokenBlocks>(a, b, acc);
    } else {
      multiply_blocks<1>(a, b, acc);
    }
  }

  /// A lane's addresses in stage 0; kept in registers, or the loop computes them again.
  struct LaneOffsets {
    std::uint32_t codes, scales;
    std::uint32_t token_scales;  // of kE4m3: of the first of the two tokens whose sums it has
  };
  static __device__ __forceinline__ LaneOffsets lane_offsets(const SharedStorage& s) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int group = static_cast<int>(threadIdx.x) / 32 % kRowGroups;
    const std::uint32_t base = s.weights + first_cell() * kPieceBytes + group * kCellBytes;
    const std::uint32_t token_scales =
        s.tokens + lane % 4 * 2 * kTokenRowBytes + 2 * kTile.stage_cols();
    return {ptx::opaque(base + lane * 16), ptx::opaque(base + kCellCodeBytes + lane * 4),
            ptx::opaque(token_scales)};
  }
  /// Of a stage, this warp's: kCellsPerWarp neighbours.
  static __device__ __forceinline__ int first_cell() {
    return static_cast<int>(threadIdx.x) / 32 / kRowGroups * kCellsPerWarp;
  }

  /// A lane's token of each block: its address in stage 0, and how far the next stage's is. For
  /// absent tokens a row of zeros in every stage: products with zeros take less power.
  struct LaneTokens {
    std::uint32_t address[kTokenBlocks], stride[kTokenBlocks];
  };
  static __device__ __forceinline__ LaneTokens lane_tokens(const SharedStorage& s, int num_tokens) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    LaneTokens tokens;
#pragma unroll
    for (int block = 0; block < kTokenBlocks; ++block) {
      const int token = block * 8 + lane / 4;
      const bool present = token < num_tokens;
      tokens.address[block] = (present ? s.tokens + token * kTokenRowBytes : s.zero_row) +
                              first_cell() * 128 + lane % 4 * 32;
      tokens.stride[block] = present ? kTokenBytes : 0;
    }
    return tokens;
  }

  static __device__ __forceinline__ void clear(Accumulators& acc) {
#pragma unroll
    for (int i = 0; i < 2 * kTokenBlocks * 4; ++i)
      (&acc[0][0][0])[i] = 0.0F;
  }

  /// acc += sums, each times its token's scale of these columns. Tokens that are not there have any
  /// scale: their sums are never stored.
  static __device__ __forceinline__ void add_scaled(const Accumulators& sums,
                                                    std::uint32_t token_scales,
                                                    Accumulators& acc) {
#pragma unroll
    for (int block = 0; block < kTokenBlocks; ++block) {
      const std::uint32_t at = token_scales + block * 8 * kTokenRowBytes;
      const float scale[2] = {__uint_as_float(ptx::load_shared_4(at)),
                              __uint_as_float(ptx::load_shared_4(at + kTokenRowBytes))};
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float& sum = acc[i / 4][block][i % 4];
        sum = __fmaf_rn(sums[i / 4][block][i % 4], scale[i % 2], sum);
      }
    }
  }

  /// The warp's `cells` cells of a stage.
  template <bool kWhole>
  static __device__ __forceinline__ void multiply_cells(const LaneOffsets& lane,
                                                        const LaneTokens& lane_tokens,
                                                        int cells,
                                                        int num_tokens,
                                                        int slot,
                                                        Accumulators& acc) {
    const std::uint32_t weights = slot * kWeightBytes;
    std::uint32_t tokens[kTokenBlocks];
#pragma unroll
    for (int block = 0; block < kTokenBlocks; ++block)
      tokens[block] = lane_tokens.address[block] + slot * lane_tokens.stride[block];
#pragma unroll
    for (int i = 0; i < kCellsPerWarp; ++i) {
      if (kWhole || i < cells) {
        multiply_cell(lane.codes + weights + i * kPieceBytes,
                      lane.scales + weights + i * kPieceBytes, tokens, i * 128, num_tokens, acc);
      }
    }
  }

  /// The stage of columns from cell `cell` on, of which `num_cells` are there.
  template <bool kWhole>
  static __device__ __forceinline__ void multiply_stage(const SharedStorage& s,
                                                        const LaneOffsets& lane,
                                                        const LaneTokens& lane_tokens,
                                                        int cell,
                                                        int num_cells,
                                                        int num_tokens,
                                                        Ring& ring,
                                                        Accumulators& acc) {
    const int cells = kWhole ? kCellsPerWarp : num_cells - first_cell();
    ptx::wait(s.full + 8 * ring.slot, ring.parity);
    if constexpr (kE4m3) {
      if (kWhole || cells > 0) {
        Accumulators sums;
        clear(sums);
        multiply_cells<kWhole>(lane, lane_tokens, cells, num_tokens, ring.slot, sums);
        constexpr int kBlockCells = kFp8BlockCols / kCellCols;
        const int block = (cell + first_cell()) / kBlockCells;
        add_scaled(sums, lane.token_scales + ring.slot * kTokenBytes + block % 4 * 4, acc);
      }
    } else {
      multiply_cells<kWhole>(lane, lane_tokens, cells, num_tokens, ring.slot, acc);
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::arrive(s.empty + 8 * ring.slot);
    ring.advance();
  }

  static __device__ __forceinline__ void multiply_tile(const SharedStorage& s,
                                                       const LaneOffsets& lane,
                                                       int col_cells,
                                                       int num_tokens,
                                                       Ring& ring,
                                                       Accumulators& acc) {
    const LaneTokens tokens = lane_tokens(s, num_tokens);
    clear(acc);
    int cell = 0;
    for (; cell + kStageCells <= col_cells; cell += kStageCells)
      multiply_stage<true>(s, lane, tokens, cell, kStageCells, num_tokens, ring, acc);
    if (cell < col_cells)
      multiply_stage<false>(s, lane, tokens, cell, col_cells - cell, num_tokens, ring, acc);
  }

  static __device__ __forceinline__ void store_partials(const SharedStorage& s, Accumulators& acc) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    float4* dst = reinterpret_cast<float4*>(s.reduce) + warp * kFragments * 32 + lane;
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      const float* v = &acc[0][0][0] + 4 * f;
      dst[f * 32] = make_float4(v[0], v[1], v[2], v[3]);
    }
  }

  /// Sums the warps' parts of a fragment. The lane gets token lane / 4 and, with q = lane % 4, rows
  /// 2q, 2q + 1, 2q + 8, 2q + 9 of the fragment's 16.
  static __device__ __forceinline__ float4 sum_partials(const SharedStorage& s, int fragment) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int group = static_cast<int>(threadIdx.x) / 32 % kRowGroups;
    const int token = lane / 4;
    // Row r, token t of a fragment: float4 of lane 4r + t / 2, component t % 2, row r + 8 two
    // later.
    const int index = (lane % 4 * 8 + token / 2) * 4 + token % 2;
    float4 sum = {};
#pragma unroll
    for (int w = 0; w < kWarpsPerGroup; ++w) {
      const float* part =
          s.reduce + ((w * kRowGroups + group) * kFragments + fragment) * 128 + index;
      sum = {sum.x + part[0], sum.y + part[16], sum.z + part[2], sum.w + part[18]};
    }
    return sum;
  }

  static __device__ __forceinline__ void finish_fragment(
      const Params& p, const SharedStorage& s, const Work& work, int fragment, int row) {
    const float4 sum = sum_partials(s, fragment);
    const int token = fragment % kTokenBlocks * 8 + static_cast<int>(threadIdx.x) % 32 / 4;
    const int first_row = row + fragment / kTokenBlocks * 16;
    if (token >= tile_tokens(s, work)) return;
    const std::int64_t route = first_route(s, work) + token;
    if (!kQuantizedH && work.gemm == 0)
      store_h<kTokenForm>(p, route, work.expert, first_row, sum);
    else
      store_row<kTokenForm>(p, route, work.expert, first_row, sum);
  }

  /// Both fragments of a block of tokens. All lanes exchange, those without a token store nothing.
  static __device__ __forceinline__ void finish_quantized_h(
      const Params& p, const SharedStorage& s, const Work& work, int block, int row) {
    const float4 sums[2] = {sum_partials(s, block), sum_partials(s, kTokenBlocks + block)};
    const int token = block * 8 + static_cast<int>(threadIdx.x) % 32 / 4;
    const bool present = token < tile_tokens(s, work);
    store_quantized_h(p, first_route(s, work) + token, present, work.expert, row, sums);
  }

  /// One of the warps that finish the cell with stored row `row`: the last of a block of h
  /// quantises it.
  static __device__ __forceinline__ void arrive_at_block(const Params& p,
                                                         const SharedStorage& s,
                                                         int expert,
                                                         int row) {
    const int block_rows = kFp8BlockCols * (p.gated ? 2 : 1);
    const int block = row / block_rows;
    const int cells = min(block_rows, p.gemm[0].rows - block * block_rows) / kCellRows;
    std::int32_t* const counter = p.args.counters + 2 + p.num_experts + expert * p.h_blocks + block;
    int before = 0;
    if (threadIdx.x % 32 == 0) before = ptx::add_acquire_release(counter, 1);
    if (ptx::uniform(before) != cells * kFinishers * token_tiles(s, expert) - 1) return;
    quantize_h_block(p, s.tiles.offset[expert], s.tiles.count[expert], block);
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
    *counter = 0;
    ptx::add_release(p.args.counters + expert, 1);
  }

  static __device__ __forceinline__ void finish_tile(const Params& p,
                                                     const SharedStorage& s,
                                                     const Work& work,
                                                     Accumulators& acc) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int group = warp % kRowGroups;
    const int row = (work.row_tile * kRowGroups + group) * kCellRows;
    store_partials(s, acc);
    ptx::named_barrier(1 + group, 32 * kWarpsPerGroup);
    if (kQuantizedH && work.gemm == 0) {
      for (int b = warp / kRowGroups; b < kTokenBlocks; b += kWarpsPerGroup)
        finish_quantized_h(p, s, work, b, row);
    } else {
      for (int f = warp / kRowGroups; f < kFragments; f += kWarpsPerGroup)
        finish_fragment(p, s, work, f, row);
    }
    __syncwarp();
    if (work.gemm == 0 && warp / kRowGroups < kFinishers) {
      if constexpr (kE4m3)
        arrive_at_block(p, s, work.expert, row);
      else if (threadIdx.x % 32 == 0)
        ptx::add_release(p.args.counters + work.expert, 1);
    }
    ptx::named_barrier(1 + group, 32 * kWarpsPerGroup);
  }

  static __device__ void multiply(const Params& p, const SharedStorage& s) {
    const LaneOffsets lane = lane_offsets(s);
    Ring ring;
    QueuePosition queue;
    for (Work work = pop(s, queue); work.gemm != kEnd; work = pop(s, queue)) {
      Accumulators acc;
      multiply_tile(s, lane, p.gemm[work.gemm].col_cells, tile_tokens(s, work), ring, acc);
      finish_tile(p, s, work, acc);
    }
  }

  static __device__ void run(const Params& p) {
    __shared__ __align__(8) std::uint64_t queue_barriers[2 * kQueueDepth];
    __shared__ Work queue[kQueueDepth];
    const SharedStorage s = shared_storage(p, queue_barriers, queue);
    ptx::launch_next_kernel();
    if (threadIdx.x == 0) init_barriers(s);
    if (threadIdx.x < kTokenRowBytes / 16) ptx::store_shared_16(s.zero_row + threadIdx.x * 16, {});
    ptx::wait_for_previous_kernel();
    cuda::build_expert_tiles<kNumThreads>(s.tiles, p.num_experts, p.args.expert_offset,
                                          p.args.expert_count, kTokens);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (warp == kProducerWarp) {
      if (threadIdx.x % 32 == 0) Producers<T>::stream_weights(p, s);
    } else if (warp == kGatherWarp) {
      Producers<T>::gather_tokens(p, s);
    } else {
      multiply(p, s);
    }
  }
};

template <int kRowGroups,
          int kTokenBlocks,
          int kCellsPerWarp,
          int kNumStages,
          DecodeTokens kTokenForm>
__global__ void __launch_bounds__(kNumThreads, 2)
    moe_decode_kernel(const __grid_constant__ Params p) {
  Kernel<Traits<kRowGroups, kTokenBlocks, kCellsPerWarp, kNumStages, kTokenForm>>::run(p);
}

using KernelPointer = void (*)(Params);
/// The kernel of a tile, or null; one file instantiates those of each form of the tokens.
template <DecodeTokens kTokenForm>
KernelPointer find_kernel(const MoeDecodeTile& tile);
template <>
KernelPointer find_kernel<DecodeTokens::kBf16>(const MoeDecodeTile& tile);
template <>
KernelPointer find_kernel<DecodeTokens::kGrid>(const MoeDecodeTile& tile);
template <>
KernelPointer find_kernel<DecodeTokens::kE4m3>(const MoeDecodeTile& tile);

}  // namespace halfbyte::sm90::moe_decode

#endif  // HALFBYTE_KERNELS_CUDA_SM90_MOE_DECODE_NVFP4_CUH_

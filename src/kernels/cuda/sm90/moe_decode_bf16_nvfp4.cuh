// SPDX-License-Identifier: Apache-2.0
//
// CTAs take tiles from a queue on the device: first all of GEMM1, expert by expert, then all of
// GEMM2. Warps 0-7 multiply; warp 8 streams weights with bulk copies; warp 9 gathers tokens (later
// h) with 16-byte copies into the same ring. A tile of GEMM2 waits for its expert's h by a counter
// while its weights already stream. A ticket waits only for smaller ones, so no CTA need be
// resident.
#ifndef HALFBYTE_KERNELS_CUDA_SM90_MOE_DECODE_BF16_NVFP4_CUH_
#define HALFBYTE_KERNELS_CUDA_SM90_MOE_DECODE_BF16_NVFP4_CUH_

#include "kernels/cuda/common/expert_tiles.cuh"
#include "kernels/cuda/common/nvfp4_decode.cuh"
#include "kernels/cuda/common/ring_position.cuh"
#include "kernels/cuda/ptx/mbarrier.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/sm90/moe_decode_bf16_nvfp4_queue.cuh"
#include "kernels/cuda/sm90/moe_decode_bf16_nvfp4_store.cuh"

namespace halfbyte::sm90::moe_decode {

template <int kRowGroups, int kTokenBlocks, int kCellsPerWarp, int kNumStages, bool kQuantizedH>
struct Kernel {
  static constexpr MoeDecodeTile kTile = {kRowGroups, kTokenBlocks, kCellsPerWarp, kNumStages};
  static constexpr int kWarpsPerGroup = kTile.warps_per_group();
  static constexpr int kStageCells = kTile.stage_cells();
  static constexpr int kTokens = 8 * kTokenBlocks;
  static constexpr int kFragments = kTile.num_fragments();
  static constexpr int kPieceBytes = kRowGroups * kCellBytes;  // 64 columns of the tile
  static constexpr int kTokenRowBytes = kTile.token_row_bytes();
  static constexpr int kWeightBytes = kTile.weight_bytes();
  static constexpr int kTokenBytes = kTile.token_bytes();
  static constexpr int kReduceBytes = kTile.reduce_bytes();
  static constexpr int kChunks = kTile.stage_cols() / 8;  // of 16 bytes, of a token in a stage
  /// Each arrives once at the expert's counter.
  static constexpr int kFinishers = kTile.finishers(kQuantizedH);
  using Ring = cuda::RingPosition<kNumStages>;
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

  static __device__ __forceinline__ void stream_tile(
      const Params& p, const SharedStorage& s, const Work& work, std::uint64_t policy, Ring& ring) {
    const Gemm& gemm = p.gemm[work.gemm];
    const int row_cell = work.row_tile * kRowGroups;
    const std::uint8_t* src = gemm.weights + work.expert * gemm.bytes_per_expert +
                              std::int64_t{row_cell / kSlabCells} * gemm.col_cells * kSlabBytes +
                              row_cell % kSlabCells * kCellBytes;
    for (int cell = 0; cell < gemm.col_cells; cell += kStageCells) {
      const int cells = min(kStageCells, gemm.col_cells - cell);
      const std::uint32_t barrier = s.full + 8 * ring.slot;
      const std::uint32_t dst = s.weights + ring.slot * kWeightBytes;
      ptx::wait(s.empty + 8 * ring.slot, ring.parity ^ 1);
      ptx::arrive_expect(barrier, static_cast<std::uint32_t>(cells) * kPieceBytes);
      // Pieces of whole slabs follow each other in memory as well.
      constexpr bool kWholeSlabs = kRowGroups == kSlabCells;
      const int pieces = kWholeSlabs ? 1 : cells;
      const auto bytes =
          static_cast<std::uint32_t>(kWholeSlabs ? cells * kPieceBytes : kPieceBytes);
      for (int i = 0; i < pieces; ++i) {
        ptx::bulk_copy(dst + i * kPieceBytes, src + std::int64_t{cell + i} * kSlabBytes, bytes,
                       barrier, policy);
      }
      ring.advance();
    }
  }

  /// One thread: takes tickets, tells the other warps, and streams the weights.
  static __device__ void stream_weights(const Params& p, const SharedStorage& s) {
    const int token_tiles = s.tiles.tile_start[p.num_experts];
    const int num_first = token_tiles * p.gemm[0].row_tiles;
    const int num_tiles = num_first + token_tiles * p.gemm[1].row_tiles;
    std::int32_t* next = p.args.counters + p.num_experts;
    const std::uint64_t policy = ptx::evict_first_policy();
    Ring ring;
    QueuePosition queue;
    int ticket = static_cast<int>(blockIdx.x);
    while (ticket < num_tiles) {
      const int following = static_cast<int>(gridDim.x) + atomicAdd(next, 1);
      const int gemm = ticket < num_first ? 0 : 1;
      const Work work = find_work(p, s, gemm, gemm == 0 ? ticket : ticket - num_first);
      push(s, queue, work);
      stream_tile(p, s, work, policy, ring);
      ticket = following;
    }
    push(s, queue, {kEnd, 0, 0, 0});
  }

  static __device__ __forceinline__ int tile_tokens(const SharedStorage& s, const Work& work) {
    return ptx::uniform(min(kTokens, s.tiles.count[work.expert] - work.token_tile * kTokens));
  }
  static __device__ __forceinline__ int first_route(const SharedStorage& s, const Work& work) {
    return s.tiles.offset[work.expert] + work.token_tile * kTokens;
  }

  static __device__ __forceinline__ void wait_for_h(const Params& p,
                                                    const SharedStorage& s,
                                                    int expert) {
    if (threadIdx.x % 32 == 0) {
      const int wanted =
          p.h_arrivals * (s.tiles.tile_start[expert + 1] - s.tiles.tile_start[expert]);
      while (ptx::load_acquire(p.args.counters + expert) < wanted) {
      }
    }
    __syncwarp();
  }

  /// Rows of the tile's B operand: of block b, four lanes have token 8 * b + lane / 4; null past
  /// the tile's tokens.
  struct TokenRows {
    const __nv_bfloat16* row[kTokenBlocks];
  };
  static __device__ __forceinline__ const __nv_bfloat16* token_row(const Params& p,
                                                                   const SharedStorage& s,
                                                                   const Work& work,
                                                                   int token) {
    const std::int64_t route = first_route(s, work) + token;
    if (work.gemm == 1) return static_cast<const __nv_bfloat16*>(p.args.h) + route * p.h_cols;
    const std::int64_t row = p.args.route_row == nullptr ? route : p.args.route_row[route];
    return static_cast<const __nv_bfloat16*>(p.args.x) + row * p.hidden_size;
  }
  static __device__ __forceinline__ TokenRows token_rows(const Params& p,
                                                         const SharedStorage& s,
                                                         const Work& work) {
    const int num_tokens = tile_tokens(s, work);
    TokenRows rows;
#pragma unroll
    for (int block = 0; block < kTokenBlocks; ++block) {
      const int token = block * 8 + static_cast<int>(threadIdx.x) % 32 / 4;
      rows.row[block] = token < num_tokens ? token_row(p, s, work, token) : nullptr;
    }
    return rows;
  }

  /// Columns [col, col + stage_cols) of the tile's tokens; past the last column, zeros.
  template <bool kWhole>
  static __device__ __forceinline__ void gather_stage(const TokenRows& rows,
                                                      int col,
                                                      int num_cols,
                                                      std::uint32_t dst) {
    static_assert(kChunks % 4 == 0 && kTokenBlocks <= 2);
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int block = 0; block < kTokenBlocks; ++block) {
      if (rows.row[block] == nullptr) continue;
      const int first = col + lane % 4 * 8;
      const __nv_bfloat16* const src = rows.row[block] + first;
      const std::uint32_t to = dst + (block * 8 + lane / 4) * kTokenRowBytes + lane % 4 * 16;
#pragma unroll
      for (int i = 0; i < kChunks / 4; ++i) {
        const bool inside = kWhole || first + i * 32 < num_cols;
        ptx::copy_16(to + i * 64, inside ? src + i * 32 : rows.row[block], inside ? 16 : 0);
      }
    }
  }

  static __device__ void gather_tokens(const Params& p, const SharedStorage& s) {
    Ring ring;
    QueuePosition queue;
    Work last = {kEnd, 0, 0, 0};
    TokenRows rows = {};
    for (Work work = pop(s, queue); work.gemm != kEnd; work = pop(s, queue)) {
      const bool same_expert = work.gemm == last.gemm && work.expert == last.expert;
      if (work.gemm == 1 && !same_expert) wait_for_h(p, s, work.expert);
      if (!same_expert || work.token_tile != last.token_tile) rows = token_rows(p, s, work);
      last = work;
      const int num_cols = work.gemm == 0 ? p.hidden_size : p.h_cols;
      for (int cell = 0; cell < p.gemm[work.gemm].col_cells; cell += kStageCells) {
        const int col = cell * kCellCols;
        ptx::wait(s.empty + 8 * ring.slot, ring.parity ^ 1);
        if (col + kStageCells * kCellCols <= num_cols)
          gather_stage<true>(rows, col, num_cols, s.tokens + ring.slot * kTokenBytes);
        else
          gather_stage<false>(rows, col, num_cols, s.tokens + ring.slot * kTokenBytes);
        ptx::arrive_after_copies(s.full + 8 * ring.slot);
        ring.advance();
      }
    }
    ptx::wait_for_copies();
    leave(p);
  }

  /// The last CTA to stop gathering zeroes the counters: by then every h was complete, so nobody
  /// counts or waits any more.
  static __device__ __forceinline__ void leave(const Params& p) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    int order = 0;
    if (lane == 0) order = atomicAdd(p.args.counters + p.num_experts + 1, 1);
    order = __shfl_sync(~0U, order, 0);
    if (order != static_cast<int>(gridDim.x) - 1) return;
    for (int i = lane; i < p.num_experts + 2; i += 32)
      p.args.counters[i] = 0;
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
        ptx::mma_16x8x16(acc[0][block], a[0] + 4 * step, low, high);
        ptx::mma_16x8x16(acc[1][block], a[1] + 4 * step, low, high);
      }
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
    cuda::decode_tile(words[0], cuda::scale_pair(scale, 0), cuda::scale_pair(scale, 1), a[0]);
    cuda::decode_tile(words[1], cuda::scale_pair(scale, 2), cuda::scale_pair(scale, 3), a[1]);
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
  };
  static __device__ __forceinline__ LaneOffsets lane_offsets(const SharedStorage& s) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const std::uint32_t base = s.weights + warp * kCellBytes;
    return {ptx::opaque(base + lane * 16), ptx::opaque(base + kCellCodeBytes + lane * 4)};
  }

  /// A lane's token of each block: its address in stage 0, and how far the next stage's is. For
  /// absent tokens a row of zeros in every stage: products with zeros take less power.
  struct LaneTokens {
    std::uint32_t address[kTokenBlocks], stride[kTokenBlocks];
  };
  static __device__ __forceinline__ LaneTokens lane_tokens(const SharedStorage& s, int num_tokens) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    LaneTokens tokens;
#pragma unroll
    for (int block = 0; block < kTokenBlocks; ++block) {
      const int token = block * 8 + lane / 4;
      const bool present = token < num_tokens;
      tokens.address[block] = (present ? s.tokens + token * kTokenRowBytes : s.zero_row) +
                              warp / kRowGroups * 128 + lane % 4 * 32;
      tokens.stride[block] = present ? kTokenBytes : 0;
    }
    return tokens;
  }

  template <bool kWhole>
  static __device__ __forceinline__ void multiply_stage(const SharedStorage& s,
                                                        const LaneOffsets& lane,
                                                        const LaneTokens& lane_tokens,
                                                        int num_cells,
                                                        int num_tokens,
                                                        Ring& ring,
                                                        Accumulators& acc) {
    const int first_cell = static_cast<int>(threadIdx.x) / 32 / kRowGroups;
    ptx::wait(s.full + 8 * ring.slot, ring.parity);
    const std::uint32_t weights = ring.slot * kWeightBytes;
    std::uint32_t tokens[kTokenBlocks];
#pragma unroll
    for (int block = 0; block < kTokenBlocks; ++block)
      tokens[block] = lane_tokens.address[block] + ring.slot * lane_tokens.stride[block];
#pragma unroll
    for (int i = 0; i < kCellsPerWarp; ++i) {
      const int cell = i * kWarpsPerGroup;
      if (kWhole || first_cell + cell < num_cells) {
        multiply_cell(lane.codes + weights + cell * kPieceBytes,
                      lane.scales + weights + cell * kPieceBytes, tokens, cell * 128, num_tokens,
                      acc);
      }
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
#pragma unroll
    for (int i = 0; i < 2 * kTokenBlocks * 4; ++i)
      (&acc[0][0][0])[i] = 0.0F;
    int cell = 0;
    for (; cell + kStageCells <= col_cells; cell += kStageCells)
      multiply_stage<true>(s, lane, tokens, kStageCells, num_tokens, ring, acc);
    if (cell < col_cells)
      multiply_stage<false>(s, lane, tokens, col_cells - cell, num_tokens, ring, acc);
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
      store_h(p, route, work.expert, first_row, sum);
    else
      store_row(p, route, work.expert, first_row, sum);
  }

  /// Both fragments of a block of tokens. All lanes exchange, those without a token store nothing.
  static __device__ __forceinline__ void finish_quantized_h(
      const Params& p, const SharedStorage& s, const Work& work, int block, int row) {
    const float4 sums[2] = {sum_partials(s, block), sum_partials(s, kTokenBlocks + block)};
    const int token = block * 8 + static_cast<int>(threadIdx.x) % 32 / 4;
    const bool present = token < tile_tokens(s, work);
    store_quantized_h(p, first_route(s, work) + token, present, work.expert, row, sums);
  }

  static __device__ __forceinline__ void finish_tile(const Params& p,
                                                     const SharedStorage& s,
                                                     const Work& work,
                                                     Accumulators& acc) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
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
    if (work.gemm == 0 && lane == 0 && warp / kRowGroups < kFinishers)
      ptx::add_release(p.args.counters + work.expert, 1);
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
      if (threadIdx.x % 32 == 0) stream_weights(p, s);
    } else if (warp == kGatherWarp) {
      gather_tokens(p, s);
    } else {
      multiply(p, s);
    }
  }
};

template <int kRowGroups, int kTokenBlocks, int kCellsPerWarp, int kNumStages, bool kQuantizedH>
__global__ void __launch_bounds__(kNumThreads, 2)
    moe_decode_kernel(const __grid_constant__ Params p) {
  Kernel<kRowGroups, kTokenBlocks, kCellsPerWarp, kNumStages, kQuantizedH>::run(p);
}

using KernelPointer = void (*)(Params);
/// The kernel of a tile, or null; one file instantiates those of each form of h.
template <bool kQuantizedH>
KernelPointer find_kernel(const MoeDecodeTile& tile);
template <>
KernelPointer find_kernel<false>(const MoeDecodeTile& tile);
template <>
KernelPointer find_kernel<true>(const MoeDecodeTile& tile);

}  // namespace halfbyte::sm90::moe_decode

#endif  // HALFBYTE_KERNELS_CUDA_SM90_MOE_DECODE_BF16_NVFP4_CUH_

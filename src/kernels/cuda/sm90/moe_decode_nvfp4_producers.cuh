// SPDX-License-Identifier: Apache-2.0
//
// The two warps of moe_decode_nvfp4 that fill its ring: one streams weights, one gathers tokens.
#ifndef HALFBYTE_KERNELS_CUDA_SM90_MOE_DECODE_NVFP4_PRODUCERS_CUH_
#define HALFBYTE_KERNELS_CUDA_SM90_MOE_DECODE_NVFP4_PRODUCERS_CUH_

#include "kernels/cuda/common/ring_position.cuh"
#include "kernels/cuda/ptx/mbarrier.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/sm90/moe_decode_nvfp4_queue.cuh"

namespace halfbyte::sm90::moe_decode {

/// What a kernel is made of, for its parts.
template <int kGroups, int kBlocks, int kCells, int kStages, DecodeTokens kForm>
struct Traits {
  static constexpr int kRowGroups = kGroups;
  static constexpr int kTokenBlocks = kBlocks;
  static constexpr int kCellsPerWarp = kCells;
  static constexpr int kNumStages = kStages;
  static constexpr DecodeTokens kTokenForm = kForm;
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
  static constexpr bool kE4m3 = kTokenForm == DecodeTokens::kE4m3;
  static_assert(!kE4m3 || kTile.stage_cols() <= 4 * kFp8BlockCols, "a stage has four scales");
  static constexpr bool kQuantizedH = kTokenForm == DecodeTokens::kGrid;
  /// Each arrives once at the expert's counter, or at its block's.
  static constexpr int kFinishers = kTile.finishers(kTokenForm);
  using Ring = cuda::RingPosition<kNumStages>;

  static __device__ __forceinline__ int tile_tokens(const SharedStorage& s, const Work& work) {
    return ptx::uniform(min(kTokens, s.tiles.count[work.expert] - work.token_tile * kTokens));
  }
  static __device__ __forceinline__ int first_route(const SharedStorage& s, const Work& work) {
    return s.tiles.offset[work.expert] + work.token_tile * kTokens;
  }

  static __device__ __forceinline__ int token_tiles(const SharedStorage& s, int expert) {
    return s.tiles.tile_start[expert + 1] - s.tiles.tile_start[expert];
  }
};

template <typename T>
struct Producers : T {
  using T::kTile, T::kRowGroups, T::kTokenBlocks, T::kStageCells, T::kChunks, T::kPieceBytes,
      T::kTokenRowBytes, T::kWeightBytes, T::kTokenBytes, T::kE4m3, T::tile_tokens, T::first_route,
      T::token_tiles;
  using typename T::Ring;

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

  static __device__ __forceinline__ void wait_for_h(const Params& p,
                                                    const SharedStorage& s,
                                                    int expert) {
    if (threadIdx.x % 32 == 0) {
      const int wanted = p.h_arrivals * (kE4m3 ? 1 : token_tiles(s, expert));
      while (ptx::load_acquire(p.args.counters + expert) < wanted) {
      }
    }
    __syncwarp();
  }

  /// Rows of the tile's B operand: of block b, four lanes have token 8 * b + lane / 4; null past
  /// the tile's tokens.
  struct TokenRows {
    const std::uint16_t* row[kTokenBlocks];
    const float* block_scale[kTokenBlocks];  // of kE4m3
  };
  static __device__ __forceinline__ void set_token_row(const Params& p,
                                                       const SharedStorage& s,
                                                       const Work& work,
                                                       int token,
                                                       int block,
                                                       TokenRows& rows) {
    const bool first = work.gemm == 0;
    const auto* const values = static_cast<const std::uint16_t*>(first ? p.args.x : p.args.h);
    const float* const scales = first ? p.args.x_block_scale : p.args.h_block_scale;
    const int cols = first ? p.hidden_size : p.h_cols;
    std::int64_t row = first_route(s, work) + token;
    if (first && p.args.route_row != nullptr) row = p.args.route_row[row];
    rows.row[block] = values + row * cols;
    if constexpr (kE4m3) rows.block_scale[block] = scales + row * block_scale_stride(cols);
  }
  static __device__ __forceinline__ TokenRows token_rows(const Params& p,
                                                         const SharedStorage& s,
                                                         const Work& work) {
    const int num_tokens = tile_tokens(s, work);
    TokenRows rows;
#pragma unroll
    for (int block = 0; block < kTokenBlocks; ++block) {
      const int token = block * 8 + static_cast<int>(threadIdx.x) % 32 / 4;
      rows.row[block] = nullptr;
      if (token < num_tokens) set_token_row(p, s, work, token, block, rows);
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
      const std::uint16_t* const src = rows.row[block] + first;
      const std::uint32_t token = dst + (block * 8 + lane / 4) * kTokenRowBytes;
      const std::uint32_t to = token + lane % 4 * 16;
#pragma unroll
      for (int i = 0; i < kChunks / 4; ++i) {
        const bool inside = kWhole || first + i * 32 < num_cols;
        ptx::copy_16(to + i * 64, inside ? src + i * 32 : rows.row[block], inside ? 16 : 0);
      }
      if constexpr (kE4m3) {
        // Four blocks' scales behind the columns, of which the stage's are some or all.
        const int first_block = col / (4 * kFp8BlockCols) * 4;
        if (lane % 4 == 0)
          ptx::copy_16(token + 2 * kTile.stage_cols(), rows.block_scale[block] + first_block, 16);
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
};

}  // namespace halfbyte::sm90::moe_decode

#endif  // HALFBYTE_KERNELS_CUDA_SM90_MOE_DECODE_NVFP4_PRODUCERS_CUH_

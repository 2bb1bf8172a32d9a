// SPDX-License-Identifier: Apache-2.0
//
// A persistent CTA multiplies tiles of 128 weight rows x kWidth tokens. Each of two consumer
// warpgroups owns 64 rows: it decodes 128 columns into registers, multiplies them, and adds the
// product times the tokens' scales of these columns to its sums. With wide tiles the two take turns
// on the tensor core, so that one multiplies while the other adds and decodes, and the CTAs of a
// cluster, which have neighbouring row tiles, copy shares of the tokens for each other. One or two
// more threads copy weights and tokens, both in the form that shared memory wants.
//
// One kernel holds a loop for each of several widths and passes through them in descending order
// (common/tile_order.cuh).
#ifndef HALFBYTE_KERNELS_CUDA_SM90_GROUPED_GEMM_FP8_NVFP4_CUH_
#define HALFBYTE_KERNELS_CUDA_SM90_GROUPED_GEMM_FP8_NVFP4_CUH_

#include "kernels/cuda/common/expert_tiles.cuh"
#include "kernels/cuda/common/fp8_decode.cuh"
#include "kernels/cuda/common/tile_order.cuh"
#include "kernels/cuda/ptx/cluster.cuh"
#include "kernels/cuda/ptx/wgmma.cuh"
#include "kernels/cuda/ptx/wgmma_e4m3.cuh"
#include "kernels/cuda/sm90/grouped_gemm_fp8_nvfp4_store.cuh"
#include "kernels/cuda/sm90/token_tiles.h"

namespace halfbyte::sm90::grouped_gemm_fp8 {

template <int kTileTokens>
struct Widths;
template <>
struct Widths<16> {
  using List = WidthList<16>;
};
template <>
struct Widths<64> {
  using List = WidthList<64, 48, 32, 16>;
};
template <>
struct Widths<160> {
  using List = WidthList<160, 144, 128, 112, 96, 80>;
};

template <int kTileTokens>
struct Kernel {
  static constexpr int kNumStages = fp8_num_stages(kTileTokens);
  static constexpr int kWeightBytes = 2 * kSlabBytes;
  static constexpr int kTokenBytes = kTileTokens * kFp8BlockCols;
  static constexpr int kScaleBytes = kTileTokens * 4;
  static constexpr bool kOneCta = fp8_ctas_per_multiprocessor(kTileTokens) == 1;
  static constexpr int kCluster = fp8_cluster_ctas(kTileTokens);
  static constexpr int kNumParts = kOneCta ? 2 : 1;  // of a stage, each copied by a thread
  static constexpr int kNumThreads = fp8_num_threads(kTileTokens);
  // As in grouped_gemm_bf16_nvfp4: where a whole warpgroup copies, it gives registers away.
  static constexpr bool kSharesRegisters = kNumThreads == 32 * kFp8NumConsumerWarps + 128;
  static constexpr int kConsumerRegisters = kOneCta ? 240 : 104;
  static constexpr int kCopyRegisters = kOneCta ? 24 : 32;
  static_assert(!kSharesRegisters ||
                32 * kFp8NumConsumerWarps * kConsumerRegisters + 128 * kCopyRegisters <=
                    ptx::launch_registers(kNumThreads, fp8_ctas_per_multiprocessor(kTileTokens)) *
                        kNumThreads);
  using Decoded = std::uint32_t[2][8];  // of a lane: a stage's halves of 64 columns
  using Ring = cuda::RingPosition<kNumStages>;

  /// Whose turn it is to multiply: a barrier for each warpgroup, on which the other's warps arrive.
  /// The first turn is the first's.
  struct Turns {
    std::uint32_t mine, other, parity;
    __device__ __forceinline__ void wait() {
      ptx::wait(mine, parity);
      parity ^= 1;
    }
    __device__ __forceinline__ void pass() const {
      __syncwarp();
      if (threadIdx.x % 32 == 0) ptx::arrive(other);
    }
  };

  /// Addresses in shared memory; `tokens` is aligned to 1024 for the swizzle.
  struct SharedStorage {
    std::uint32_t tokens, weights, scales, staging, full, empty, turns;
    TileQueue queue;
    cuda::ExpertTiles tiles;
    cuda::TileOrder order;
  };

  static __device__ __forceinline__ SharedStorage shared_storage(const Params& p) {
    extern __shared__ std::uint8_t shared[];
    const std::uint32_t begin = ptx::shared_address(shared);
    const std::uint32_t aligned = (begin + 1023) / 1024 * 1024;
    SharedStorage s;
    s.tokens = static_cast<std::uint32_t>(ptx::uniform(static_cast<int>(aligned)));
    s.weights = s.tokens + kNumStages * kTokenBytes;
    s.scales = s.weights + kNumStages * kWeightBytes;
    s.staging = s.scales + kNumStages * kScaleBytes;
    s.full = s.staging + kFp8NumConsumerWarps * kGemmWarpStaging;
    s.empty = s.full + 8 * kNumStages;
    s.turns = s.empty + 8 * kNumStages;
    s.queue.full = s.turns + 8 * 2;
    s.queue.empty = s.queue.full + 8 * kGemmQueueDepth;
    std::uint8_t* const queue = shared + (s.queue.empty + 8 * kGemmQueueDepth - begin);
    s.queue.tiles = reinterpret_cast<Tile*>(queue);
    auto* words = reinterpret_cast<std::int32_t*>(queue + kGemmQueueDepth * sizeof(Tile));
    s.tiles = cuda::place_expert_tiles(words, p.num_experts);
    s.order =
        cuda::place_tile_order(words + cuda::ExpertTiles::words(p.num_experts), p.num_experts);
    return s;
  }

  static __device__ __forceinline__ void init_barriers(const SharedStorage& s) {
    for (int i = 0; i < kNumStages; ++i) {
      ptx::init_barrier(s.full + 8 * i, kNumParts);
      ptx::init_barrier(s.empty + 8 * i, kCluster * kFp8NumConsumerWarps);
    }
    for (int i = 0; i < 2; ++i)
      ptx::init_barrier(s.turns + 8 * i, kFp8NumConsumerWarps / 2);
    s.queue.init_barriers(kFp8NumConsumerWarps);
    ptx::fence_barrier_init();
  }

  static __device__ __forceinline__ int block_rank() {
    return kCluster == 1 ? 0 : static_cast<int>(ptx::cluster_rank());
  }
  /// Row tiles of a cluster; the last may be past the matrix, and is then not stored.
  static __device__ __forceinline__ int row_groups(const Params& p) {
    return (p.row_tiles + kCluster - 1) / kCluster;
  }

  static __device__ __forceinline__ Tile find(const Params& p, const SharedStorage& s, int index) {
    const cuda::TileIndex t = cuda::find_ordered_tile(s.order, p.num_experts, row_groups(p), index);
    return make_tile(s.tiles, s.order, t, (t.row_tile * kCluster + block_rank()) * kSlabCells);
  }

  /// This block's share of a stage's tokens and scales, for the whole cluster.
  static __device__ __forceinline__ void copy_share(std::uint32_t dst,
                                                    const void* src,
                                                    std::uint32_t bytes,
                                                    std::uint32_t barrier) {
    if constexpr (kCluster == 1) {
      ptx::bulk_copy(dst, src, bytes, barrier);
    } else {
      const std::uint32_t at = bytes / kCluster * ptx::cluster_rank();
      ptx::multicast_copy(dst + at, static_cast<const std::uint8_t*>(src) + at, bytes / kCluster,
                          barrier, (1U << kCluster) - 1);
    }
  }

  /// Copies each stage of a tile, or the thread's part of it: the weights; the tokens, the zeros
  /// that make them as many as the product is wide, and their scales.
  static __device__ __forceinline__ void copy_tile(
      const Params& p, const SharedStorage& s, const Tile& tile, int part, Ring& ring) {
    const int row_tile = tile.row_cell / kSlabCells;
    const bool copies_weights = (kNumParts == 1 || part == 0) && row_tile < p.row_tiles;
    const bool copies_tokens = kNumParts == 1 || part == 1;
    const std::int64_t first = std::int64_t{tile.image} * p.col_blocks;
    const std::uint8_t* weights = p.args.weights + tile.expert * p.bytes_per_expert +
                                  std::int64_t{row_tile} * p.col_blocks * kWeightBytes;
    const std::uint8_t* tokens = p.args.tokens + first * kTokenBytes;
    const float* scales = p.args.token_scale + first * kTileTokens;
    const auto token_bytes = static_cast<std::uint32_t>(tile.width * kFp8BlockCols);
    const auto scale_bytes = static_cast<std::uint32_t>(tile.width * 4);
    const std::uint32_t bytes =
        (copies_weights ? kWeightBytes : 0) + (copies_tokens ? token_bytes + scale_bytes : 0);
#pragma unroll 1
    for (int block = 0; block < p.col_blocks; ++block) {
      const std::uint32_t barrier = s.full + 8 * ring.slot;
      ptx::wait(s.empty + 8 * ring.slot, ring.parity ^ 1);
      ptx::arrive_expect(barrier, bytes);
      if (copies_weights)
        ptx::bulk_copy(s.weights + ring.slot * kWeightBytes, weights, kWeightBytes, barrier);
      if (copies_tokens) {
        copy_share(s.tokens + ring.slot * kTokenBytes, tokens, token_bytes, barrier);
        copy_share(s.scales + ring.slot * kScaleBytes, scales, scale_bytes, barrier);
      }
      weights += kWeightBytes;
      tokens += kTokenBytes;
      scales += kTileTokens;
      ring.advance();
    }
  }

  /// One thread a part; the first tells the consumers each tile. After the last comes an empty
  /// stage, which the consumers take for the first of another tile.
  static __device__ void copy_operands(const Params& p, const SharedStorage& s, int part) {
    Ring ring;
    QueuePosition queue;
    const int num_tiles = s.tiles.tile_start[p.num_experts] * row_groups(p);
    if (part == kNumParts - 1) ptx::wait_then_launch_next();
    for (int i = static_cast<int>(blockIdx.x) / kCluster; i < num_tiles;
         i += static_cast<int>(gridDim.x) / kCluster) {
      const Tile tile = find(p, s, i);
      if (part == 0) s.queue.push(queue, tile);
      copy_tile(p, s, tile, part, ring);
    }
    if (part == 0) s.queue.push(queue, {});
    ptx::wait(s.empty + 8 * ring.slot, ring.parity ^ 1);
    ptx::arrive(s.full + 8 * ring.slot);
  }

  /// This lane's weights of a stage: of 16 rows x 128 columns a warp.
  struct Words {
    uint4 codes[2];  // of each 64 columns
    std::uint32_t scales[2];
  };
  /// A lane's addresses in slot 0.
  struct LaneOffsets {
    std::uint32_t codes, scales, token_scales;
  };
  static __device__ __forceinline__ LaneOffsets lane_offsets(const SharedStorage& s) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int tile = static_cast<int>(threadIdx.x) / 32;
    const std::uint32_t cell = s.weights + tile / 2 * kCellBytes;
    return {cell + tile % 2 * 512 + lane * 16, cell + kCellCodeBytes + lane * 4 + tile % 2 * 2,
            s.scales + lane % 4 * 16};
  }
  static __device__ __forceinline__ Words load_words(const SharedStorage& s,
                                                     const LaneOffsets& lane,
                                                     const Ring& ring) {
    ptx::wait(s.full + 8 * ring.slot, ring.parity);
    const std::uint32_t at = ring.slot * kWeightBytes;
    return {
        {ptx::load_shared_16(lane.codes + at), ptx::load_shared_16(lane.codes + at + kSlabBytes)},
        {ptx::load_shared_2(lane.scales + at), ptx::load_shared_2(lane.scales + at + kSlabBytes)}};
  }

  static __device__ __forceinline__ Turns turns(const SharedStorage& s) {
    const auto group =
        static_cast<std::uint32_t>(ptx::uniform(static_cast<int>(threadIdx.x) / 128));
    return {s.turns + 8 * group, s.turns + 8 * (1 - group), 1 - group};
  }

  /// sums = a[64 x 128] times the stage's tokens, as two groups of products: one a half of `a`.
  template <int kWidth>
  static __device__ __forceinline__ void multiply_stage(float (&sums)[kWidth / 2],
                                                        const Decoded& a,
                                                        std::uint32_t tokens) {
    ptx::wgmma_fence();
    ptx::wgmma_64xNx32_e4m3<kWidth, false>(sums, a[0], ptx::swizzled_operand(tokens, 0));
    ptx::wgmma_64xNx32_e4m3<kWidth, true>(sums, a[0] + 4, ptx::swizzled_operand(tokens, 32));
    ptx::wgmma_commit();
    ptx::wgmma_64xNx32_e4m3<kWidth, true>(sums, a[1], ptx::swizzled_operand(tokens, 64));
    ptx::wgmma_64xNx32_e4m3<kWidth, true>(sums, a[1] + 4, ptx::swizzled_operand(tokens, 96));
    ptx::wgmma_commit();
  }

  /// acc += sums, each times its token's scale of these columns.
  template <int kWidth>
  static __device__ __forceinline__ void add_scaled(const float (&sums)[kWidth / 2],
                                                    std::uint32_t token_scales,
                                                    float (&acc)[kWidth / 2]) {
#pragma unroll
    for (int group = 0; group < kWidth / 16; ++group) {
      const float4 s = ptx::load_shared_float4(token_scales + 64 * group);
      const float scale[4] = {s.x, s.y, s.z, s.w};
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float& sum = acc[8 * group + i];
        sum = __fmaf_rn(sums[8 * group + i], scale[i / 4 * 2 + i % 2], sum);
      }
    }
  }

  /// Gives a slot back, to every block that fills it.
  static __device__ __forceinline__ void release(const SharedStorage& s, int slot) {
    __syncwarp();
    const std::uint32_t lane = threadIdx.x % 32;
    if constexpr (kCluster == 1) {
      if (lane == 0) ptx::arrive(s.empty + 8 * slot);
    } else {
      if (lane < kCluster) ptx::arrive_at(s.empty + 8 * slot, lane);
    }
  }

  static __device__ __forceinline__ void decode_half(const Words& words, int half, Decoded& a) {
    cuda::decode_fp8_tile(words.codes[half], words.scales[half], a[half]);
  }

  /// `a` holds the tile's first stage, and then the stage after its last. Of a stage's two halves
  /// the first is free for the next stage while the second is multiplied.
  template <int kWidth>
  static __device__ __forceinline__ void multiply_tile(const Params& p,
                                                       const SharedStorage& s,
                                                       const LaneOffsets& lane,
                                                       Ring& ring,
                                                       Turns& turns,
                                                       Decoded& a,
                                                       float (&acc)[kWidth / 2]) {
    float sums[kWidth / 2];
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i)
      acc[i] = 0.0F;
#pragma unroll 1
    for (int block = 0; block < p.col_blocks; ++block) {
      if (kOneCta) turns.wait();
      multiply_stage<kWidth>(sums, a, s.tokens + ring.slot * kTokenBytes);
      const int slot = ring.slot;
      ring.advance();
      const Words next = load_words(s, lane, ring);
      ptx::wgmma_wait<1>();
      if (kOneCta) turns.pass();
      decode_half(next, 0, a);
      ptx::wgmma_wait<0>();
      add_scaled<kWidth>(sums, lane.token_scales + slot * kScaleBytes, acc);
      release(s, slot);
      decode_half(next, 1, a);
    }
  }

  /// The next tiles, as long as they are of this width.
  template <GemmOutput kOutput, int kWidth>
  static __device__ __forceinline__ void multiply_width(const Params& p,
                                                        const SharedStorage& s,
                                                        const LaneOffsets& lane,
                                                        Ring& ring,
                                                        Turns& turns,
                                                        QueuePosition& queue,
                                                        Decoded& a) {
    const int warp = ptx::uniform(static_cast<int>(threadIdx.x) / 32);
    while (s.queue.next_width(queue) == kWidth) {
      // The products hide what the epilogue would wait for.
      const Tile& next = s.queue.tiles[queue.slot];
      if (next.row_cell < p.row_tiles * kSlabCells)
        ptx::prefetch_l1(Store<kWidth>::row_factors(p, next.expert, next.row_cell * 2 + warp));
      float acc[kWidth / 2];
      multiply_tile<kWidth>(p, s, lane, ring, turns, a, acc);
      const Tile tile = s.queue.pop(queue);
      if (tile.row_cell >= p.row_tiles * kSlabCells) continue;
      Store<kWidth>::template run<kOutput>(p, tile, tile.row_cell * 2 + warp,
                                           s.staging + warp * kGemmWarpStaging, acc);
    }
  }

  template <GemmOutput kOutput, int... kWidths>
  static __device__ __forceinline__ void multiply(const Params& p,
                                                  const SharedStorage& s,
                                                  WidthList<kWidths...> /*widths*/) {
    const LaneOffsets lane = lane_offsets(s);
    Ring ring;
    Turns taken = turns(s);
    QueuePosition queue;
    const Words words = load_words(s, lane, ring);
    Decoded a;
    decode_half(words, 0, a);
    decode_half(words, 1, a);
    (multiply_width<kOutput, kWidths>(p, s, lane, ring, taken, queue, a), ...);
  }

  template <GemmOutput kOutput>
  static __device__ __forceinline__ void run(const Params& p) {
    const SharedStorage s = shared_storage(p);
    if (threadIdx.x == 0) init_barriers(s);
    if constexpr (kCluster > 1) ptx::cluster_barrier();
    cuda::build_expert_tiles<kNumThreads>(s.tiles, p.num_experts, p.args.expert_offset,
                                          p.args.expert_count, kTileTokens);
    cuda::build_tile_order<kNumThreads, kTileTokens>(s.order, s.tiles, p.num_experts, [](int rows) {
      return rows == 0 ? 0 : TokenTiles{kTileTokens, 0, 1}.width(rows);
    });
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (warp >= kFp8NumConsumerWarps) {
      if constexpr (kSharesRegisters) ptx::fewer_registers<kCopyRegisters>();
      const int part = warp - kFp8NumConsumerWarps;
      if (part < kNumParts && threadIdx.x % 32 == 0) copy_operands(p, s, part);
    } else {
      if constexpr (kSharesRegisters) ptx::more_registers<kConsumerRegisters>();
      multiply<kOutput>(p, s, typename Widths<kTileTokens>::List());
    }
    // Nobody leaves while others copy into its memory or arrive at its barriers.
    if constexpr (kCluster > 1) {
      __syncwarp();
      ptx::cluster_barrier();
    }
  }
};

template <int kTileTokens, GemmOutput kOutput>
__global__ void __launch_bounds__(fp8_num_threads(kTileTokens),
                                  fp8_ctas_per_multiprocessor(kTileTokens))
    grouped_gemm_fp8_kernel(const __grid_constant__ Params p) {
  Kernel<kTileTokens>::template run<kOutput>(p);
}

using KernelPointer = void (*)(Params);
/// The kernel of a tile size, or null; one file instantiates each output's kernels.
template <GemmOutput kOutput>
KernelPointer find_kernel(int tile_tokens);
template <>
KernelPointer find_kernel<GemmOutput::kActivated>(int tile_tokens);
template <>
KernelPointer find_kernel<GemmOutput::kRows>(int tile_tokens);

}  // namespace halfbyte::sm90::grouped_gemm_fp8

#endif  // HALFBYTE_KERNELS_CUDA_SM90_GROUPED_GEMM_FP8_NVFP4_CUH_

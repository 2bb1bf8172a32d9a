// SPDX-License-Identifier: Apache-2.0
//
// A persistent CTA multiplies tiles of 256 weight rows x kWidth tokens. Each consumer warpgroup
// owns one or two m64 tiles and decodes the next 64 columns in registers while earlier products
// run; three more warps copy weights and token tiles, both in the form that shared memory wants.
//
// Wide products: two warpgroups with two tiles each. Narrow ones are over sooner than the next tile
// is decoded, and a warp that waits to issue a product cannot decode, so there are four warpgroups.
//
// One kernel holds a loop for each of several widths and passes through them in descending order
// (common/tile_order.cuh): two widths in one loop would make the compiler wait after every product.
#ifndef HALFBYTE_KERNELS_CUDA_SM90_GROUPED_GEMM_BF16_NVFP4_CUH_
#define HALFBYTE_KERNELS_CUDA_SM90_GROUPED_GEMM_BF16_NVFP4_CUH_

#include <utility>

#include "kernels/cuda/common/expert_tiles.cuh"
#include "kernels/cuda/common/nvfp4_decode.cuh"
#include "kernels/cuda/common/ring_position.cuh"
#include "kernels/cuda/common/tile_order.cuh"
#include "kernels/cuda/ptx/mbarrier.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/ptx/wgmma.cuh"
#include "kernels/cuda/sm90/grouped_gemm_bf16_nvfp4_store.cuh"

namespace halfbyte::sm90::grouped_gemm {

template <int kTileTokens>
struct Kernel {
  static constexpr int kTiles = gemm_tiles_per_warpgroup(kTileTokens);
  static constexpr int kNumConsumerWarps = gemm_num_consumer_warps(kTileTokens);
  static constexpr int kNumThreads = num_threads(kTileTokens);
  // Of a thread, once the copying warps have given what they do not need: a warp that asked for
  // more than a CTA has would wait for ever.
  static constexpr int kConsumerRegisters = kTiles == 2 ? 240 : 112;
  static constexpr int kCopyRegisters = kTiles == 2 ? 24 : 32;
  static_assert(32 * kNumConsumerWarps * kConsumerRegisters + 128 * kCopyRegisters <=
                ptx::launch_registers(kNumThreads, 1) * kNumThreads);
  static constexpr int kNumStages = gemm_num_stages(kTileTokens);
  static constexpr int kGroup = gemm_stages_per_group(kTileTokens);
  static constexpr int kNumParts = 3;  // of a stage, each copied by a thread of its own
  static constexpr int kWeightBytes = 2 * kSlabBytes;
  static constexpr int kTokenBytes = kTileTokens * 128;
  /// Stages whose decoded weights a warpgroup keeps: of its 2 tiles all but one are being
  /// multiplied.
  static constexpr int kBuffers = 2 / kTiles;
  using Decoded = std::uint32_t[kTiles][16];

  /// Addresses in shared memory; `tokens` is aligned to 1024 for the swizzle.
  struct SharedStorage {
    std::uint32_t tokens, weights, staging, full, empty;
    TileQueue queue;
    cuda::ExpertTiles tiles;
    cuda::TileOrder order;
  };

  /// Of stages to the copying threads, of groups of them to the warps that multiply.
  using Ring = cuda::RingPosition<kNumStages>;
  using GroupRing = cuda::RingPosition<kNumStages / kGroup>;

  static __device__ __forceinline__ SharedStorage shared_storage(const Params& p) {
    extern __shared__ std::uint8_t shared[];
    const std::uint32_t begin = ptx::shared_address(shared);
    const std::uint32_t aligned = (begin + 1023) / 1024 * 1024;
    SharedStorage s;
    s.tokens = static_cast<std::uint32_t>(ptx::uniform(static_cast<int>(aligned)));
    s.weights = s.tokens + kNumStages * kTokenBytes;
    s.staging = s.weights + kNumStages * kWeightBytes;
    s.full = s.staging + gemm_staging_bytes(kTileTokens);
    s.empty = s.full + 8 * kNumStages;
    s.queue.full = s.empty + 8 * kNumStages;
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
      ptx::init_barrier(s.empty + 8 * i, kNumConsumerWarps);
    }
    s.queue.init_barriers(kNumConsumerWarps);
    ptx::fence_barrier_init();
  }

  static __device__ __forceinline__ int num_tiles(const Params& p, const SharedStorage& s) {
    return s.tiles.tile_start[p.num_experts] * p.row_tiles;
  }

  static __device__ __forceinline__ Tile find(const Params& p, const SharedStorage& s, int index) {
    const cuda::TileIndex t = cuda::find_ordered_tile(s.order, p.num_experts, p.row_tiles, index);
    return make_tile(s.tiles, s.order, t, t.row_tile * kTileRowCells);
  }

  /// Copies a part of each stage of a tile: part 0 or 1 is a warpgroup's (or two's) 128 rows of
  /// weights, part 2 the tokens and the zeros that make them as many as the product is wide.
  static __device__ __forceinline__ void copy_tile(
      const Params& p, const SharedStorage& s, const Tile& tile, int part, Ring& ring) {
    const bool tokens = part == 2;
    const std::int64_t slab = tile.row_cell / kSlabCells + part;
    const std::uint8_t* src = tokens ? static_cast<const std::uint8_t*>(p.args.tokens) +
                                           std::int64_t{tile.image} * p.col_cells * kTokenBytes
                                     : p.args.weights + tile.expert * p.bytes_per_expert +
                                           slab * p.col_cells * kSlabBytes;
    const std::uint32_t dst = tokens ? s.tokens : s.weights + part * kSlabBytes;
    const int stride = tokens ? kTokenBytes : kWeightBytes;
    const int advance = tokens ? kTokenBytes : kSlabBytes;
    const bool absent = !tokens && tile.row_cell + part * kSlabCells >= p.row_cells;
    const auto bytes = static_cast<std::uint32_t>(tokens ? tile.width * 128 : kSlabBytes);
    const int stages = (p.col_cells + kGroup - 1) / kGroup * kGroup;
#pragma unroll 1
    for (int cell = 0; cell < stages; ++cell) {
      const std::uint32_t barrier = s.full + 8 * ring.slot;
      ptx::wait(s.empty + 8 * ring.slot, ring.parity ^ 1);
      if (absent || cell >= p.col_cells) {
        ptx::arrive(barrier);
      } else {
        ptx::arrive_expect(barrier, bytes);
        ptx::bulk_copy(dst + ring.slot * stride, src, bytes, barrier);
      }
      src += advance;
      ring.advance();
    }
  }

  /// One thread a part. The first tells the consumers each tile, and in the end one of no width.
  static __device__ void copy_operands(const Params& p, const SharedStorage& s, int part) {
    Ring ring;
    QueuePosition queue;
    const int tiles = num_tiles(p, s);
    if (part == kNumParts - 1) ptx::wait_then_launch_next();
    for (int i = static_cast<int>(blockIdx.x); i < tiles; i += static_cast<int>(gridDim.x)) {
      const Tile tile = find(p, s, i);
      if (part == 0) s.queue.push(queue, tile);
      copy_tile(p, s, tile, part, ring);
    }
    if (part == 0) s.queue.push(queue, {});
  }

  /// This warp's weights of a step: 16 rows of each of its tiles x 64 columns. Its two tiles are
  /// the halves of a cell; a warp with one has half a cell.
  struct Words {
    uint4 tile[kTiles];
    std::uint32_t scales;
  };
  /// A lane's addresses in slot 0.
  struct LaneOffsets {
    std::uint32_t codes, scales;
  };
  static __device__ __forceinline__ LaneOffsets lane_offsets(const SharedStorage& s) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int tile = static_cast<int>(threadIdx.x) / 32 * kTiles;
    const std::uint32_t cell = s.weights + tile / 2 * kCellBytes;
    return {cell + tile % 2 * 512 + lane * 16, cell + kCellCodeBytes + lane * 4 + tile % 2 * 2};
  }
  static __device__ __forceinline__ Words load_words(const LaneOffsets& lane, int offset) {
    Words words;
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
      words.tile[t] = ptx::load_shared_16(lane.codes + offset + 512 * t);
    words.scales = kTiles == 2 ? ptx::load_shared_4(lane.scales + offset)
                               : ptx::load_shared_2(lane.scales + offset);
    return words;
  }

  template <int kWidth>
  static __device__ __forceinline__ void multiply_step(float (&acc)[kWidth / 2],
                                                       const std::uint32_t* a,
                                                       std::uint32_t tokens,
                                                       std::uint32_t offset) {
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step)
      ptx::wgmma_64xNx16<kWidth>(acc, a + 4 * step,
                                 ptx::swizzled_operand(tokens, offset + 32 * step));
    ptx::wgmma_commit();
  }

  /// Gives a slot back: all products that read it are done.
  static __device__ __forceinline__ void release(const SharedStorage& s,
                                                 int slot,
                                                 bool filled = true) {
    __syncwarp();
    if (filled && threadIdx.x % 32 == 0) ptx::arrive(s.empty + 8 * slot);
  }

  /// Stage `kStage` of a group, 64 columns. Its places are written as the group's plus a constant,
  /// or the compiler works out each of them. Before a buffer is decoded into, its last products are
  /// waited for; at the last tile that retires all readers of the stage that used this buffer
  /// before, which is in slot `before`, if this tile filled it.
  template <int kWidth, int kStage>
  static __device__ __forceinline__ void multiply_stage(const SharedStorage& s,
                                                        const LaneOffsets& lane,
                                                        const GroupRing& ring,
                                                        bool filled,
                                                        int before,
                                                        Decoded& a,
                                                        float (&acc)[kTiles][kWidth / 2]) {
    ptx::wait(s.full + 8 * kGroup * ring.slot + 8 * kStage, ring.parity);
    const Words words = load_words(lane, kGroup * kWeightBytes * ring.slot + kWeightBytes * kStage);
    const std::uint32_t tokens = s.tokens + kGroup * kTokenBytes * ring.slot;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      ptx::wgmma_wait<kBuffers * kTiles - 1>();
      if (t == kTiles - 1) release(s, before, filled);
      cuda::decode_tile(words.tile[t], cuda::scale_pair(words.scales, 2 * t),
                        cuda::scale_pair(words.scales, 2 * t + 1), a[t]);
      multiply_step<kWidth>(acc[t], a[t], tokens, kTokenBytes * kStage);
    }
  }

  /// A stage past the last of a tile, which fills up its group.
  static __device__ __forceinline__ void skip_stage(
      const SharedStorage& s, const GroupRing& ring, int stage, bool filled, int before) {
    ptx::wait(s.full + 8 * (ring.slot * kGroup + stage), ring.parity);
    ptx::wgmma_wait<0>();
    release(s, before, filled);
  }

  /// The first `stages` of a group; a call with a constant number has no branch.
  template <int kWidth, int... kStages>
  static __device__ __forceinline__ void multiply_group(
      const SharedStorage& s,
      const LaneOffsets& lane,
      GroupRing& ring,
      bool first,
      int stages,
      Decoded (&a)[kBuffers],
      float (&acc)[kTiles][kWidth / 2],
      std::integer_sequence<int, kStages...> /*of a group*/) {
    const int base = ring.slot * kGroup;
    const int previous = base == 0 ? kNumStages : base;
    const auto before = [&](int stage) {
      return (stage < kBuffers ? previous : base) + stage - kBuffers;
    };
    const auto run = [&]<int kStage>() {
      const bool filled = kStage >= kBuffers || !first;
      if (kStage < stages)
        multiply_stage<kWidth, kStage>(s, lane, ring, filled, before(kStage), a[kStage % kBuffers],
                                       acc);
      else
        skip_stage(s, ring, kStage, filled, before(kStage));
    };
    (run.template operator()<kStages>(), ...);
    ring.advance();
  }

  template <int kWidth>
  static __device__ __forceinline__ void multiply_tile(const Params& p,
                                                       const SharedStorage& s,
                                                       const LaneOffsets& lane,
                                                       GroupRing& ring,
                                                       float (&acc)[kTiles][kWidth / 2]) {
    constexpr auto kStages = std::make_integer_sequence<int, kGroup>();
    Decoded a[kBuffers];
    const int groups = p.col_cells / kGroup;
    const int rest = p.col_cells % kGroup;
#pragma unroll
    for (int i = 0; i < kTiles * kWidth / 2; ++i)
      (&acc[0][0])[i] = 0.0F;
#pragma unroll 1
    for (int group = 0; group < groups; ++group)
      multiply_group<kWidth>(s, lane, ring, group == 0, kGroup, a, acc, kStages);
    // Also where no shape has such a rest: without it the compiler serialises the loop's products.
    if (kGroup > 1 && rest > 0)
      multiply_group<kWidth>(s, lane, ring, groups == 0, rest, a, acc, kStages);
    ptx::wgmma_wait<0>();
    const int base = ring.slot * kGroup;
#pragma unroll
    for (int behind = kBuffers; behind > 0; --behind)
      release(s, (base == 0 ? kNumStages : base) - behind);
  }

  /// The next tiles, as long as they are of this width.
  template <GemmOutput kOutput, int kWidth>
  static __device__ __forceinline__ void multiply_width(const Params& p,
                                                        const SharedStorage& s,
                                                        GroupRing& ring,
                                                        QueuePosition& queue) {
    const LaneOffsets lane = lane_offsets(s);
    const int warp = ptx::uniform(static_cast<int>(threadIdx.x) / 32);
    while (s.queue.next_width(queue) == kWidth) {
      float acc[kTiles][kWidth / 2];
      multiply_tile<kWidth>(p, s, lane, ring, acc);
      const Tile tile = s.queue.pop(queue);
      const int row_tile = tile.row_cell * 2 + warp * kTiles;
      if (row_tile < p.row_cells * 2)
        Store<kTileTokens, kWidth, kOutput>::run(p, tile, row_tile,
                                                 s.staging + warp * kGemmWarpStaging, acc);
    }
  }

  template <GemmOutput kOutput, int... kWidths>
  static __device__ __forceinline__ void multiply(const Params& p,
                                                  const SharedStorage& s,
                                                  WidthList<kWidths...> /*widths*/) {
    GroupRing ring;
    QueuePosition queue;
    (multiply_width<kOutput, kWidths>(p, s, ring, queue), ...);
  }

  template <GemmOutput kOutput>
  static __device__ __forceinline__ void run(const Params& p) {
    const SharedStorage s = shared_storage(p);
    if (threadIdx.x == 0) init_barriers(s);
    cuda::build_expert_tiles<kNumThreads>(s.tiles, p.num_experts, p.args.expert_offset,
                                          p.args.expert_count, kTileTokens);
    cuda::build_tile_order<kNumThreads, kTileTokens>(s.order, s.tiles, p.num_experts, [](int rows) {
      return rows == 0 ? 0 : TokenTiles{kTileTokens, 0}.width(rows);
    });
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (warp >= kNumConsumerWarps) {
      ptx::fewer_registers<kCopyRegisters>();
      const int part = warp - kNumConsumerWarps;
      if (part < kNumParts && threadIdx.x % 32 == 0) copy_operands(p, s, part);
    } else {
      ptx::more_registers<kConsumerRegisters>();
      multiply<kOutput>(p, s, typename Widths<kTileTokens>::List());
    }
  }
};

template <int kTileTokens, GemmOutput kOutput>
__global__ void __launch_bounds__(num_threads(kTileTokens), 1)
    grouped_gemm_kernel(const __grid_constant__ Params p) {
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
template <>
KernelPointer find_kernel<GemmOutput::kQuantized>(int tile_tokens);
template <>
KernelPointer find_kernel<GemmOutput::kScaledRows>(int tile_tokens);

}  // namespace halfbyte::sm90::grouped_gemm

#endif  // HALFBYTE_KERNELS_CUDA_SM90_GROUPED_GEMM_BF16_NVFP4_CUH_

// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm90/token_tiles.h"

#include <cuda_bf16.h>

#include <algorithm>

#include "base/checked.h"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/sm90/tile_rows.cuh"

namespace halfbyte::sm90 {
namespace {

constexpr int kNumThreads = 256;
constexpr int kNumWarps = kNumThreads / 32;

struct Params {
  GatherTokensArgs args;
  TokenTiles tiles;
  int num_experts;
  int hidden_size;
};

constexpr int kUnroll = 4;

/// One warp: every `stride`th part of a row from `part` on. A part is kUnroll rounds of four blocks
/// of 64 columns, of which each lane loads 16 bytes. Zeros without a row.
__device__ __forceinline__ void gather_row(const Params& p,
                                           std::uint32_t* staging,
                                           const __nv_bfloat16* row,
                                           int tile,
                                           int token,
                                           int part,
                                           int stride) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int num_chunks = static_cast<int>(p.tiles.cols) / 8;
  auto* dst = static_cast<std::uint8_t*>(p.args.dst);
  for (int first = 32 * kUnroll * part; first < num_chunks; first += 32 * kUnroll * stride) {
    uint4 raw[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int col = (first + 32 * u + lane) * 8;
      raw[u] = row != nullptr && col < p.hidden_size ? *reinterpret_cast<const uint4*>(row + col)
                                                     : uint4{};
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int i = first + 32 * u + lane;
      // Two stagings take turns: who is late reads the other.
      const uint4 chunk = permute_chunk(staging + u % 2 * 4 * kBlockWords, raw[u]);
      if (i < num_chunks)
        *reinterpret_cast<uint4*>(dst + p.tiles.chunk_offset(tile, i / 8, token, i % 8)) = chunk;
    }
  }
}

__device__ __forceinline__ const __nv_bfloat16* token_row(const Params& p, std::int64_t route) {
  const std::int64_t row = p.args.route_row == nullptr ? route : p.args.route_row[route];
  return static_cast<const __nv_bfloat16*>(p.args.x) + row * p.hidden_size;
}

/// A warp or more a row of a tile.
__global__ void __launch_bounds__(kNumThreads, 5) gather_kernel(const __grid_constant__ Params p) {
  extern __shared__ std::int32_t shared[];
  __shared__ __align__(16) std::uint32_t staging[kNumWarps][2 * 4 * kBlockWords];
  const cuda::ExpertTiles tiles = cuda::place_expert_tiles(shared, p.num_experts);
  ptx::wait_then_launch_next();
  cuda::build_expert_tiles<kNumThreads>(tiles, p.num_experts, p.args.expert_offset,
                                        p.args.expert_count, p.tiles.tile_tokens);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int sharing = warps_per_row(tiles, p.tiles, p.num_experts, kNumWarps);
  const auto visit = [&](const TileRow& row) {
    gather_row(p, staging[warp], row.route < 0 ? nullptr : token_row(p, row.route), row.tile,
               row.token, warp % sharing, sharing);
  };
  for_each_tile_row(tiles, p.tiles, p.num_experts, warp / sharing, kNumWarps / sharing, visit);
}

}  // namespace

Status launch_gather_tokens(int num_experts,
                            std::int64_t max_routes,
                            std::int64_t hidden_size,
                            int tile_tokens,
                            const GatherTokensArgs& args,
                            CUstream_st* stream) {
  if (max_routes == 0) return {};
  constexpr std::int64_t kMaxBlocks = 132 * 8;
  const Params params = {
      args, {tile_tokens, round_up(hidden_size, 64)}, num_experts, static_cast<int>(hidden_size)};
  const std::int64_t rows = params.tiles.max_tiles(max_routes, num_experts) * tile_tokens;
  const cuda::Grid grid = {
      dim3(static_cast<unsigned>(std::min(ceil_div(rows, kNumWarps), kMaxBlocks))), kNumThreads,
      static_cast<std::size_t>(cuda::ExpertTiles::words(num_experts)) * 4};
  return cuda::launch_overlapped("gather_tokens", gather_kernel, grid, stream, params);
}

}  // namespace halfbyte::sm90

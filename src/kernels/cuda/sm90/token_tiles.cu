// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm90/token_tiles.h"

#include "base/checked.h"
#include "kernels/cuda/common/expert_tiles.cuh"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/tile_order.cuh"
#include "kernels/cuda/ptx/memory.cuh"

namespace halfbyte::sm90 {
namespace {

constexpr int kNumThreads = 256;

struct Params {
  GatherTokensArgs args;
  TokenTiles tiles;
  int num_experts;
  int hidden_size;
};

/// A lane writes 8 positions: four pairs of columns, 16 columns apart.
__device__ __forceinline__ uint4 permuted_chunk(const Params& p,
                                                const std::uint32_t* row,
                                                int block,
                                                int chunk) {
  const int col = block * 64 + chunk * 2;
  std::uint32_t pair[4];
#pragma unroll
  for (int q = 0; q < 4; ++q)
    pair[q] = col + 16 * q < p.hidden_size ? row[col / 2 + 8 * q] : 0;
  return make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

/// One warp.
__device__ __forceinline__ void gather_row(const Params& p,
                                           const std::uint32_t* row,
                                           int tile,
                                           int token) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int num_chunks = static_cast<int>(p.tiles.cols) / 8;
#pragma unroll 4
  for (int i = lane; i < num_chunks; i += 32) {
    const std::int64_t offset = p.tiles.chunk_offset(tile, i / 8, token, i % 8);
    *reinterpret_cast<uint4*>(static_cast<std::uint8_t*>(p.args.dst) + offset) =
        permuted_chunk(p, row, i / 8, i % 8);
  }
}

/// A warp a row of a tile.
__global__ void __launch_bounds__(kNumThreads, 5) gather_kernel(const __grid_constant__ Params p) {
  extern __shared__ std::int32_t shared[];
  const cuda::ExpertTiles tiles = cuda::place_expert_tiles(shared, p.num_experts);
  ptx::launch_next_kernel();
  ptx::wait_for_previous_kernel();
  cuda::build_expert_tiles<kNumThreads>(tiles, p.num_experts, p.args.expert_offset,
                                        p.args.expert_count, p.tiles.tile_tokens);
  const int num_rows = tiles.tile_start[p.num_experts] * p.tiles.tile_tokens;
  const int warp = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) / 32;
  for (int i = warp; i < num_rows; i += static_cast<int>(gridDim.x * blockDim.x) / 32) {
    const int tile = i / p.tiles.tile_tokens;
    const int token = i % p.tiles.tile_tokens;
    const int expert = cuda::find_tile(tiles, p.num_experts, 1, tile).expert;
    const int rows = cuda::rows_per_tile(tiles, expert);
    const int in_expert = (tile - tiles.tile_start[expert]) * rows + token;
    if (token >= rows || in_expert >= tiles.count[expert]) continue;
    const std::int64_t route = tiles.offset[expert] + in_expert;
    const std::int64_t row = p.args.route_row == nullptr ? route : p.args.route_row[route];
    gather_row(p, static_cast<const std::uint32_t*>(p.args.x) + row * (p.hidden_size / 2), tile,
               token);
  }
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
  const std::int64_t blocks = ceil_div(rows, kNumThreads / 32);
  const cuda::Grid grid = {dim3(static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks)),
                           kNumThreads,
                           static_cast<std::size_t>(cuda::ExpertTiles::words(num_experts)) * 4};
  return cuda::launch_overlapped("gather_tokens", gather_kernel, grid, stream, params);
}

}  // namespace halfbyte::sm90

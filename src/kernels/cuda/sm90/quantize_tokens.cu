// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>

#include <algorithm>

#include "base/checked.h"
#include "formats/sm90_fp8_layout.h"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/load_values.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/sm90/e4m3_blocks.cuh"
#include "kernels/cuda/sm90/tile_rows.cuh"

namespace halfbyte::sm90 {
namespace {

constexpr int kNumThreads = 256;
constexpr int kNumWarps = kNumThreads / 32;
constexpr int kBlockCols = kFp8BlockCols;  // that share a scale

struct Params {
  QuantizeTokensArgs args;
  TokenTiles tiles;
  int num_experts;
  int cols;
};

__device__ __forceinline__ void load_columns(const float* row, float (&v)[kLaneCols]) {
  cuda::load_f32(row, v);
}
__device__ __forceinline__ void load_columns(const __nv_bfloat16* row, float (&v)[kLaneCols]) {
  cuda::load_bf16(row, v);
}

/// Word i of lane j of each four lanes becomes word j of lane i.
__device__ __forceinline__ void transpose_4x4(std::uint32_t (&w)[4]) {
#pragma unroll
  for (int d = 1; d < 4; d *= 2) {
    const bool upper = (threadIdx.x & d) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & d) != 0) continue;
      const std::uint32_t other = __shfl_xor_sync(~0U, upper ? w[i] : w[i + d], d);
      (upper ? w[i] : w[i + d]) = other;
    }
  }
}

/// What a lane holds of a row: chunk lane % 8 of `block`, one of a round's four.
__device__ __forceinline__ void store_chunk(
    const Params& p, int tile, int token, int block, const std::uint32_t (&words)[4], float scale) {
  const int chunk = static_cast<int>(threadIdx.x) % 8;
  *reinterpret_cast<uint4*>(p.args.dst + p.tiles.chunk_offset(tile, block, token, chunk)) =
      make_uint4(words[0], words[1], words[2], words[3]);
  if (chunk == 0) p.args.scale[p.tiles.scale_index(tile, block, token)] = scale;
}

/// One warp: every `stride`th round of a row from `round` on, four blocks, a lane 16 columns.
template <typename T>
__device__ __forceinline__ void quantize_blocks(
    const Params& p, const T* row, int tile, int token, int round, int stride) {
  const int num_blocks = static_cast<int>(p.tiles.cols) / kBlockCols;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 2
  for (int first = round * kWarpBlocks; first < num_blocks; first += stride * kWarpBlocks) {
    const int block = first + lane / 8;
    const int col = block * kBlockCols + lane % 8 * kLaneCols;
    float v[kLaneCols] = {};
    if (col < p.cols) load_columns(row + col, v);
    E4m3Block quantized = quantize_block(v);
    // A lane's word i belongs to chunk i of its 64 columns; lane j then holds chunk j.
    transpose_4x4(quantized.words);
    if (block < num_blocks) store_chunk(p, tile, token, block, quantized.words, quantized.scale);
  }
}

/// The same of a row that is not there.
__device__ __forceinline__ void clear_blocks(
    const Params& p, int tile, int token, int round, int stride) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int num_blocks = static_cast<int>(p.tiles.cols) / kBlockCols;
  for (int block = round * kWarpBlocks + lane / 8; block < num_blocks;
       block += stride * kWarpBlocks)
    store_chunk(p, tile, token, block, {}, 0.0F);
}

/// A warp or more a row of a tile.
template <typename T>
__global__ void __launch_bounds__(kNumThreads, 4)
    quantize_kernel(const __grid_constant__ Params p) {
  extern __shared__ std::int32_t shared[];
  const cuda::ExpertTiles tiles = cuda::place_expert_tiles(shared, p.num_experts);
  ptx::wait_then_launch_next();
  cuda::build_expert_tiles<kNumThreads>(tiles, p.num_experts, p.args.expert_offset,
                                        p.args.expert_count, p.tiles.tile_tokens);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int sharing = warps_per_row(tiles, p.tiles, p.num_experts, kNumWarps);
  const int round = warp % sharing;
  const auto visit = [&](const TileRow& row) {
    if (row.route < 0) return clear_blocks(p, row.tile, row.token, round, sharing);
    const std::int64_t at = p.args.route_row == nullptr ? row.route : p.args.route_row[row.route];
    const T* const x = static_cast<const T*>(p.args.x) + at * p.cols;
    quantize_blocks(p, x, row.tile, row.token, round, sharing);
  };
  for_each_tile_row(tiles, p.tiles, p.num_experts, warp / sharing, kNumWarps / sharing, visit);
}

}  // namespace

Status launch_quantize_tokens(int num_experts,
                              std::int64_t max_routes,
                              std::int64_t cols,
                              int tile_tokens,
                              const QuantizeTokensArgs& args,
                              CUstream_st* stream) {
  if (max_routes == 0) return {};
  constexpr std::int64_t kMaxBlocks = 132 * 8;
  const Params params = {
      args, {tile_tokens, round_up(cols, kFp8BlockCols), 1}, num_experts, static_cast<int>(cols)};
  const std::int64_t rows = params.tiles.max_tiles(max_routes, num_experts) * tile_tokens;
  const cuda::Grid grid = {
      dim3(static_cast<unsigned>(std::min(ceil_div(rows, kNumWarps), kMaxBlocks))), kNumThreads,
      static_cast<std::size_t>(cuda::ExpertTiles::words(num_experts)) * 4};
  const auto kernel = args.f32 ? quantize_kernel<float> : quantize_kernel<__nv_bfloat16>;
  return cuda::launch_overlapped("quantize_tokens", kernel, grid, stream, params);
}

}  // namespace halfbyte::sm90

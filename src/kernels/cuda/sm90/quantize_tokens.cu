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
  int part_blocks;  // of a row, that a warp takes; a multiple of kWarpBlocks
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

/// One warp: blocks [first_block, end_block) of a row, four a round, a lane 16 columns.
template <typename T>
__device__ __forceinline__ void quantize_blocks(
    const Params& p, const T* row, int tile, int token, int first_block, int end_block) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 2
  for (int first = first_block; first < end_block; first += kWarpBlocks) {
    const int block = first + lane / 8;
    const int col = block * kBlockCols + lane % 8 * kLaneCols;
    float v[kLaneCols] = {};
    if (col < p.cols) load_columns(row + col, v);
    E4m3Block quantized = quantize_block(v);
    // A lane's word i belongs to chunk i of its 64 columns; lane j then holds chunk j.
    transpose_4x4(quantized.words);
    if (block < end_block) store_chunk(p, tile, token, block, quantized.words, quantized.scale);
  }
}

/// The same of a row that is not there.
__device__ __forceinline__ void clear_blocks(
    const Params& p, int tile, int token, int first_block, int end_block) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int block = first_block + lane / 8; block < end_block; block += kWarpBlocks)
    store_chunk(p, tile, token, block, {}, 0.0F);
}

/// blockIdx.y is a part of the columns; a warp takes one row of a tile after the other.
template <typename T>
__global__ void __launch_bounds__(kNumThreads, 4)
    quantize_kernel(const __grid_constant__ Params p) {
  extern __shared__ std::int32_t shared[];
  const cuda::ExpertTiles tiles = cuda::place_expert_tiles(shared, p.num_experts);
  ptx::launch_next_kernel();
  ptx::wait_for_previous_kernel();
  cuda::build_expert_tiles<kNumThreads>(tiles, p.num_experts, p.args.expert_offset,
                                        p.args.expert_count, p.tiles.tile_tokens);
  const int first_block = static_cast<int>(blockIdx.y) * p.part_blocks;
  const int end_block =
      min(first_block + p.part_blocks, static_cast<int>(p.tiles.cols) / kBlockCols);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  for_each_tile_row(tiles, p.tiles, p.num_experts, warp, kNumWarps, [&](const TileRow& row) {
    if (row.route < 0) return clear_blocks(p, row.tile, row.token, first_block, end_block);
    const std::int64_t at = p.args.route_row == nullptr ? row.route : p.args.route_row[row.route];
    const T* const x = static_cast<const T*>(p.args.x) + at * p.cols;
    quantize_blocks(p, x, row.tile, row.token, first_block, end_block);
  });
}

/// Few rows are cut into parts, so that every multiprocessor has some.
int part_blocks(std::int64_t max_routes, std::int64_t num_blocks) {
  constexpr std::int64_t kEnoughWarps = 132 * 64;
  const std::int64_t parts = ceil_div(kEnoughWarps, max_routes);
  return static_cast<int>(round_up(ceil_div(num_blocks, parts), kWarpBlocks));
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
  Params params = {args,
                   {tile_tokens, round_up(cols, kFp8BlockCols), 1},
                   num_experts,
                   static_cast<int>(cols),
                   0};
  const std::int64_t rows = params.tiles.max_tiles(max_routes, num_experts) * tile_tokens;
  const std::int64_t num_blocks = params.tiles.cols / kBlockCols;
  params.part_blocks = part_blocks(max_routes, num_blocks);
  const std::int64_t parts = ceil_div(num_blocks, params.part_blocks);
  const std::int64_t blocks = std::min(ceil_div(rows, kNumWarps), ceil_div(kMaxBlocks, parts));
  const cuda::Grid grid = {dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(parts)),
                           kNumThreads,
                           static_cast<std::size_t>(cuda::ExpertTiles::words(num_experts)) * 4};
  const auto kernel = args.f32 ? quantize_kernel<float> : quantize_kernel<__nv_bfloat16>;
  return cuda::launch_overlapped("quantize_tokens", kernel, grid, stream, params);
}

}  // namespace halfbyte::sm90

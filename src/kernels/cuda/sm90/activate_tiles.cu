// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm90/activate_tiles.h"

#include <algorithm>

#include "base/checked.h"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/common/load_values.cuh"
#include "kernels/cuda/common/portable_activation.h"
#include "kernels/cuda/common/row_range.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/sm90/grid_values.cuh"
#include "kernels/cuda/sm90/tile_rows.cuh"

namespace halfbyte::sm90 {
namespace {

constexpr int kNumThreads = 128;

struct Params {
  ActivateTilesArgs args;
  TokenTiles tiles;
  int num_experts;
  int half_groups;  // of h
  std::int64_t sum_cols;
};

/// Values of h that each thread keeps: 8 of each half group that is its own.
__host__ __device__ constexpr int kept_values(int half_groups) {
  return (half_groups + kNumThreads - 1) / kNumThreads * kHalfGroup;
}

struct Alphas {
  float gate, up;
};
__device__ __forceinline__ Alphas route_alphas(const ActivateTilesArgs& args, const TileRow& row) {
  const int token = args.route_row == nullptr ? row.route : args.route_row[row.route];
  const float s = args.row_scale[token];
  const float gate = args.gate_scale == nullptr ? 0.0F : args.gate_scale[row.expert];
  return {cuda::row_alpha(gate, s), cuda::row_alpha(args.up_scale[row.expert], s)};
}

/// Half group `i` of a row. With a gate, 8 sums of the gate lie before those of up (sm90_layout.h).
__device__ __forceinline__ void make_h(const ActivateTilesArgs& args,
                                       const float* sums,
                                       const Alphas& alphas,
                                       int i,
                                       float (&h)[kHalfGroup]) {
  float gate[kHalfGroup] = {};
  float up[kHalfGroup];
  if (args.gate_scale == nullptr) {
    cuda::load_f32(sums + i * kHalfGroup, up);
  } else {
    cuda::load_f32(sums + i * (2 * kHalfGroup), gate);
    cuda::load_f32(sums + i * (2 * kHalfGroup) + kHalfGroup, up);
  }
#pragma unroll
  for (int j = 0; j < kHalfGroup; ++j)
    h[j] = cuda::portable_activate(args.activation, gate[j] * alphas.gate, up[j] * alphas.up);
}

__device__ __forceinline__ void store_chunk(const Params& p,
                                            const TileRow& row,
                                            int chunk,
                                            uint4 value) {
  if (chunk >= p.tiles.cols / 8) return;
  const std::int64_t at = p.tiles.chunk_offset(row.tile, chunk / 8, row.token, chunk % 8);
  *reinterpret_cast<uint4*>(static_cast<std::uint8_t*>(p.args.dst) + at) = value;
}

/// The thread's values of h go to `kept`, kNumThreads apart; the row's scale comes back.
__device__ __forceinline__ float activate_row(const Params& p, const TileRow& row, float* kept) {
  const float* const sums = p.args.sums + row.route * p.sum_cols;
  const Alphas alphas = route_alphas(p.args, row);
  cuda::RowRange range;
  for (int i = static_cast<int>(threadIdx.x); i < p.half_groups; i += kNumThreads) {
    float h[kHalfGroup];
    make_h(p.args, sums, alphas, i, h);
#pragma unroll
    for (int j = 0; j < kHalfGroup; ++j) {
      range.add(h[j]);
      kept[j * kNumThreads] = h[j];
    }
    kept += kHalfGroup * kNumThreads;
  }
  return cuda::reduce_range<kNumThreads>(range).scale();
}

/// By whole warps, which exchange what belongs into each other's chunks.
__device__ __forceinline__ void store_row(const Params& p,
                                          const TileRow& row,
                                          const float* kept,
                                          std::uint32_t* staging,
                                          const cuda::QuantizeScale& scale) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int turn = 0;
  for (int i = static_cast<int>(threadIdx.x); i - lane < p.tiles.cols / 8; i += kNumThreads) {
    float h[kHalfGroup];
#pragma unroll
    for (int j = 0; j < kHalfGroup; ++j)
      h[j] = i < p.half_groups ? kept[j * kNumThreads] : 0.0F;
    kept += kHalfGroup * kNumThreads;
    const uint4 grid = grid_half_group(h, scale);
    // Two stagings take turns: who is late reads the other.
    store_chunk(p, row, i, permute_chunk(staging + turn * 4 * kBlockWords, grid));
    turn ^= 1;
  }
  __syncwarp();
}

/// A block a row of a tile.
__global__ void __launch_bounds__(kNumThreads) activate_kernel(const __grid_constant__ Params p) {
  extern __shared__ float shared[];
  __shared__ __align__(16) std::uint32_t staging[kNumThreads / 32][2 * 4 * kBlockWords];
  float* const kept = shared + threadIdx.x;
  const cuda::ExpertTiles tiles = cuda::place_expert_tiles(
      reinterpret_cast<std::int32_t*>(shared + kept_values(p.half_groups) * kNumThreads),
      p.num_experts);
  ptx::wait_then_launch_next();
  cuda::build_expert_tiles<kNumThreads>(tiles, p.num_experts, p.args.expert_offset,
                                        p.args.expert_count, p.tiles.tile_tokens);
  const auto visit = [&](const TileRow& row) {
    if (row.route < 0) {
      for (int i = static_cast<int>(threadIdx.x); i < p.tiles.cols / 8; i += kNumThreads)
        store_chunk(p, row, i, {});
      return;
    }
    const float s = activate_row(p, row, kept);
    store_row(p, row, kept, staging[threadIdx.x / 32], cuda::make_quantize_scale(s));
    if (threadIdx.x == 0)
      p.args.row_alpha[row.route] = cuda::row_alpha(p.args.down_scale[row.expert], s);
  };
  for_each_tile_row(tiles, p.tiles, p.num_experts, 0, 1, visit);
}

}  // namespace

Status launch_activate_tiles(const GroupedGemmShape& gate_up,
                             std::int64_t max_routes,
                             int tile_tokens,
                             const ActivateTilesArgs& args,
                             CUstream_st* stream) {
  if (max_routes == 0) return {};
  constexpr std::int64_t kMaxBlocks = 132 * 12;
  const WeightShape& weights = gate_up.weights.shape;
  const Params params = {args,
                         {tile_tokens, round_up(weights.half_rows, 64)},
                         static_cast<int>(weights.num_experts),
                         static_cast<int>(weights.half_rows) / kHalfGroup,
                         gate_up.output_cols()};
  const std::size_t shared_bytes =
      (static_cast<std::size_t>(kept_values(params.half_groups)) * kNumThreads +
       static_cast<std::size_t>(cuda::ExpertTiles::words(params.num_experts))) *
      4;
  HALFBYTE_RETURN_IF_ERROR(
      cuda::allow_shared_bytes("activate_tiles", activate_kernel, shared_bytes));
  const std::int64_t rows = params.tiles.max_tiles(max_routes, params.num_experts) * tile_tokens;
  const cuda::Grid grid = {dim3(static_cast<unsigned>(std::min(rows, kMaxBlocks))), kNumThreads,
                           shared_bytes};
  return cuda::launch_overlapped("activate_tiles", activate_kernel, grid, stream, params);
}

}  // namespace halfbyte::sm90
